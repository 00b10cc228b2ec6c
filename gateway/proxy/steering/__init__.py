"""Steering of upstreams of type `vllm`: constraints, logits masks and rollback of answers.

request          rewrites a request for each upstream
resume           the requests of an answer that may be rolled back
rollback         events → events and the next request, pure; answer_tokens: which tokens wrote which text
rollback_stream  performs it on a response
mask_probe       which masks requests ask for, and whether an upstream applies them
vocabularies     the models' vocabularies
"""
