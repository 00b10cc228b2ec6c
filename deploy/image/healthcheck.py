"""The image's health check: exit status 0 if HEALTH_URL answers 200, else 1 with the reason on standard error."""

import os
import sys
import urllib.request

TIMEOUT = 3  # seconds; below the timeout of HEALTHCHECK, so that the reason is printed

url = os.environ.get("HEALTH_URL", "http://127.0.0.1:9090/healthz")
# A proxy in the environment is meant for upstreams.
direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
try:
    with direct.open(url, timeout=TIMEOUT) as answer:
        healthy = answer.status == 200
except (OSError, ValueError) as error:
    sys.exit(f"{url}: {error}; if the configuration moves listen.admin, set HEALTH_URL")
sys.exit(not healthy)
