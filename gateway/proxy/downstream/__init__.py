"""The client side: the HTTP protocol with its bounds, one request of it, framing faults, checks of Host and Origin."""
