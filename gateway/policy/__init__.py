"""The configuration as frozen data: declared in `model`, read by `load`; `routes` finds the route of a request."""
