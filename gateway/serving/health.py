"""Is a gateway up? `portcullis health`, and the health check of the image.

Nothing of ours is imported: the image runs this file by itself every few seconds, and importing the package would cost
many times what the question does.
"""

from __future__ import annotations

import os
import sys
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

ADDRESS_FILE = "PORTCULLIS_ADDRESS_FILE"  # names the file in which a gateway leaves the address of its probes
TIMEOUT = 3  # seconds; below the timeout of HEALTHCHECK, so that the reason is printed
DEFAULT = "http://127.0.0.1:8080"


def own_address(environ: Mapping[str, str] = os.environ) -> str:
    """`HEALTH_URL`, or the address that the gateway has left, or where one listens by default. Raises OSError."""
    if url := environ.get("HEALTH_URL"):
        return url
    file = environ.get(ADDRESS_FILE)
    return Path(file).read_text("utf-8").strip() if file else DEFAULT


def leave_address(url: str, environ: Mapping[str, str] = os.environ) -> None:
    """Write where probes are answered into the file that the environment names, if it does. Raises OSError."""
    if file := environ.get(ADDRESS_FILE):
        Path(file).write_text(reachable(url) + "\n", "utf-8")


def reachable(url: str) -> str:
    """A listener's URL as its own machine reaches it: on all addresses is on the loopback, too."""
    return url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")


def problem(url: str | None = None) -> str | None:
    """Why the gateway at `url`, or else at `own_address`, is not healthy, None if it is. Without a path it is asked for
    `/healthz`."""
    try:
        url = url or own_address()
    except OSError as error:
        return f"no gateway has left its address: {error}"
    if urlsplit(url).path in ("", "/"):
        url = url.rstrip("/") + "/healthz"
    # A proxy in the environment is meant for upstreams.
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(url, timeout=TIMEOUT) as answer:
            return None if answer.status == 200 else f"{url}: status {answer.status}"
    except (OSError, ValueError) as error:
        return f"{url}: {error}"


def main() -> int:
    if found := problem():
        print(found, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
