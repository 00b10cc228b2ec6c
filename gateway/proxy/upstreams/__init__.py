"""The upstream servers: requests to them, their health, and which of a route's upstreams gets a request.

client      requests to one upstream, and its responses
health      circuit breaker, and what a failed attempt says about the upstream
balancer    order, retries and failover over a route's upstreams
models      `/v1/models` from all upstreams' lists
"""
