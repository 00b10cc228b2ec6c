"""Gateways of others beside ours, under one load: `python -m loadtest.peers`.

upstream   answers in OpenAI's shape, each tenth chunk with the moment at which it was sent in its text
targets    how each peer is installed, configured and started
bench      the load, what is measured, the table, the CSV file, the chart and the page
"""
