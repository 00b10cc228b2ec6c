"""Running the searches of an audit: in this process, in several, or on Ray; stopping and resuming them."""
