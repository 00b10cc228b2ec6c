"""Ten patterns and eight detectors as a team would write them beside a word list: what the bench adds to a policy."""

from __future__ import annotations

PATTERNS = {
    "ticket": r"(?i)\bPROJ-\d{1,6}\b",
    "account": r"\b[A-Z]{2,5}-\d{3,8}\b",
    "password": r"(?i)\bpassword\s*[:=]\s*\S+",
    "extension": r"\b\d{3}-\d{4}-\d{3}\b",
    "internal": r"(?i)internal use only",
    "part": r"\b(?:ACME|Initech)-[A-Z0-9]{8}\b",
    "build": r"(?i)\bbuild[ -]?\d{4,}\b",
    "tagged": r"<secret>[^<]{0,100}</secret>",
    "digest": r"\b[0-9a-f]{40}\b",
    "customer": r"(?i)\bcustomer (?:id|number)\W{1,3}\d+",
}
DETECTORS = ("email", "credit_card", "iban", "us_ssn", "phone", "ipv4", "jwt", "api_key")


def rules() -> list[dict[str, object]]:
    """As they stand in a configuration."""
    patterns: list[dict[str, object]] = [{"id": name, "pattern": pattern} for name, pattern in PATTERNS.items()]
    return patterns + [{"id": name, "detector": name} for name in DETECTORS]
