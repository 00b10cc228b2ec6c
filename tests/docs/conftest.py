from tests.support.served_demo import demo_address

__all__ = ["demo_address"]
