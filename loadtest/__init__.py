"""The load test: what a stream guard costs, measured against doing nothing, on one machine in one run.

`python -m loadtest` (or `make bench`) starts a paced scripted upstream, puts each target between it and a load
generator in turn, checks every character that comes out, and prints one table. Reading order:

    scenarios.toml  scenario.py   what is run, and which counts must come out
    prose.txt       script.py     the text of every stream, and the text that must arrive
    dialects.py                   requests and answers of chat, responses and messages
    upstream.py                   sends the script, token by token, at a steady pace
    client.py                     opens the streams and stamps whatever arrives
    answer.py                     reads an answer back from its stamped bytes
    bytecopy.py  nginx.conf  targets.py  what stands in between
    process.py                    CPU time, memory and pinning, from /proc
    run.py  verdicts.py  report.py   one measurement; the limits; the table
    censor_bench.py               the censor alone, without sockets
    request_upstream.py  request_bench.py  whole requests: CPU time of each, on kept and on new connections
    idle.py  reload.py            memory of thousands of open streams; the delays beside a reload

`make decode-bench` measures models of one's own: mask_bench.py (what masks cost), distribution_bench.py with
distributions.py (how far rollback changes answers), rollback_bench.py (tokens spent).

`make audit-bench` runs the experiments of the audit, in `experiments/`; their tables and charts stand in results/ too.
"""
