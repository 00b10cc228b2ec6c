"""What the gateway does with upstreams of type `vllm` beyond forwarding: constraints, masks, rollback."""
