"""API keys of well-known issuers: their beginnings, lengths and checksums were chosen to make them findable.

The machine follows everything that begins like a key up to its end; there the whole is compared, which costs the
machine a few states for each issuer and not one for each character.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable
from typing import NamedTuple
from zlib import crc32

from gateway.censor.detectors.model import Detector, Format
from gateway.censor.detectors.secrets import KEY_BEFORE


class Issuer(NamedTuple):
    """The issuer of keys that begin with `lead` and go on with `rest`, regular expressions, and the page that documents
    them.

    `checksum`: the last six characters are that of all others behind the lead.
    """

    name: str
    lead: str
    rest: str
    page: str
    checksum: bool = False

    @property
    def form(self) -> str:
        return self.lead + self.rest


_WORD, _TOKEN, _HEX = "[A-Za-z0-9]", r"[A-Za-z0-9_\-]", "[0-9a-f]"
_AWS = "https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_identifiers.html"
_GITHUB = "https://github.blog/engineering/platform-security/behind-githubs-new-authentication-token-formats/"
_GITHUB_APPS = (
    "https://github.blog/changelog/2026-04-24-notice-about-upcoming-new-format-for-github-app-installation-tokens/"
)
_NPM = "https://github.blog/2021-09-23-announcing-npms-new-access-token-format/"
_DIGITALOCEAN = "https://docs.digitalocean.com/reference/api/create-personal-access-token/"
_GRAFANA = "https://grafana.com/docs/grafana/latest/administration/service-accounts/"
_OPENAI = "https://platform.openai.com/docs/api-reference/authentication"
_ANTHROPIC = "https://docs.anthropic.com/en/api/overview"
_OPENROUTER = "https://openrouter.ai/docs/api-reference/authentication"
_SLACK = "https://docs.slack.dev/authentication/tokens"
_GITLAB = "https://docs.gitlab.com/security/tokens/#token-prefixes"
_SENDGRID = "https://www.twilio.com/docs/sendgrid/ui/account-and-settings/api-keys"
_VAULT = "https://developer.hashicorp.com/vault/docs/concepts/tokens"

# Made of letters, digits and _ only: a hyphen ends them.
WORDS = (
    Issuer("AWS", "A(?:KIA|SIA|BIA|CCA)", "[A-Z2-7]{16}", _AWS),
    Issuer("GitHub", "gh[oprsu]_", f"{_WORD}{{36}}", _GITHUB, checksum=True),
    Issuer("GitHub", "github_pat_", f"{_WORD}{{22}}_{_WORD}{{59}}", _GITHUB),
    Issuer("npm", "npm_", f"{_WORD}{{36}}", _NPM, checksum=True),
    Issuer("Stripe", "[rs]k_(?:live|test)_", f"{_WORD}{{16,}}", "https://docs.stripe.com/keys"),
    Issuer("Stripe", "whsec_", f"{_WORD}{{32,}}", "https://docs.stripe.com/webhooks"),
    Issuer("Twilio", f"(?:AC|SK){_HEX}{{6}}", f"{_HEX}{{26}}", "https://www.twilio.com/docs/glossary/what-is-a-sid"),
    Issuer("Hugging Face", "hf_", f"{_WORD}{{34}}", "https://huggingface.co/docs/hub/security-tokens"),
    Issuer("DigitalOcean", "do[opr]_v1_", f"{_HEX}{{64}}", _DIGITALOCEAN),
    Issuer("Shopify", "shp(?:at|ca|pa|ss)_", "[0-9A-Fa-f]{32}", "https://shopify.dev/docs/apps/build/authentication"),
    Issuer("Databricks", "dapi", f"{_HEX}{{32}}", "https://docs.databricks.com/en/dev-tools/auth/pat.html"),
    Issuer("Grafana", "glsa_", f"{_WORD}{{32}}_[0-9A-Fa-f]{{8}}", _GRAFANA),
    Issuer("Groq", "gsk_", f"{_WORD}{{52}}", "https://console.groq.com/docs/quickstart"),
    Issuer("RubyGems", "rubygems_", f"{_HEX}{{48}}", "https://guides.rubygems.org/api-key-scopes/"),
)
_GITLAB_KINDS = "gl(?:pat|dt|rt|cbt|ptt|ft|agent|oas|soat|imt|ffct)-"
# Made of hyphens too.
TOKENS = (
    Issuer("OpenAI", "sk-(?:proj|svcacct|admin|None)-", f"{_TOKEN}{{40,}}", _OPENAI),
    # Without a kind, so at least a digit and a letter.
    Issuer("OpenAI", "sk-", f"(?=[a-zA-Z]*[0-9])(?=[0-9]*[a-zA-Z]){_WORD}{{32,64}}", _OPENAI),
    Issuer("Anthropic", "sk-ant-", f"[a-z]+[0-9]{{2}}-{_TOKEN}{{32,}}", _ANTHROPIC),
    Issuer("OpenRouter", "sk-or-v1-", f"{_HEX}{{64}}", _OPENROUTER),
    # The tokens of installed applications, ghs_ with a number and a JSON web token.
    Issuer("GitHub", rf"ghs_{_WORD}+_ey{_TOKEN}+\.{_TOKEN}+\.", f"{_TOKEN}+", _GITHUB_APPS),
    Issuer("Google", "AIza", f"{_TOKEN}{{35}}", "https://cloud.google.com/docs/authentication/api-keys"),
    Issuer("Google", "GOCSPX-", f"{_TOKEN}{{28}}", "https://developers.google.com/identity/protocols/oauth2"),
    Issuer("Slack", "xox[abeoprs]-[0-9]", r"[A-Za-z0-9\-]{9,}", _SLACK),
    Issuer("Slack", "xapp-[0-9]-", r"[A-Za-z0-9\-]{10,}", _SLACK),
    Issuer("GitLab", _GITLAB_KINDS, f"{_TOKEN}{{20,}}", _GITLAB),
    Issuer("GitLab", rf"{_GITLAB_KINDS}{_TOKEN}+\.[0-9a-z]{{2}}\.", "[0-9a-z]{9}", _GITLAB),
    # The beginning is a serialised macaroon that names the index.
    Issuer(
        "PyPI", "pypi-AgE(?:IcHlwaS5vcmc|NdGVzdC5weXBpLm9yZw)", f"{_TOKEN}{{50,}}", "https://pypi.org/help/#apitoken"
    ),
    Issuer("SendGrid", rf"SG\.{_TOKEN}{{22}}\.", f"{_TOKEN}{{43}}", _SENDGRID),
    Issuer("Docker", "dckr_[op]at_", f"{_TOKEN}{{27,}}", "https://docs.docker.com/security/access-tokens/"),
    Issuer("HashiCorp Vault", r"hv[brs]\.", f"{_TOKEN}{{24,}}", _VAULT),
    Issuer("Perplexity", "pplx-", f"{_WORD}{{48}}", "https://docs.perplexity.ai/getting-started/quickstart"),
    Issuer("xAI", "xai-", f"{_WORD}{{80}}", "https://docs.x.ai/docs/overview"),
    Issuer("age", "AGE-SECRET-KEY-1", "[AC-HJ-NP-Z02-9]{58}", "https://age-encryption.org/v1"),
)


def _any_of(forms: Iterable[str]) -> str:
    return "|".join(dict.fromkeys(forms))


_FORMS = re.compile(_any_of(issuer.form for issuer in (*WORDS, *TOKENS)))
_CHECKED = re.compile(_any_of(issuer.form for issuer in WORDS if issuer.checksum))
_BASE62 = string.digits + string.ascii_uppercase + string.ascii_lowercase


def is_api_key(text: str) -> bool:
    """Is the whole in one of the forms, with the right checksum if it has one?"""
    if _FORMS.fullmatch(text) is None:
        return False
    return _CHECKED.fullmatch(text) is None or checksum(text[4:-6]) == text[-6:]


def checksum(random: str) -> str:
    """The CRC-32 of a token's random part, in base 62 with leading zeros to six characters."""
    rest, written = crc32(random.encode()), ""
    while rest:
        rest, digit = divmod(rest, 62)
        written = _BASE62[digit] + written
    return written.rjust(6, "0")


def _after(token: str) -> str:
    """What stands behind a key: no further character of it, but up to two signs, as Markdown's emphasis has them."""
    end = rf"$|[^{token}]"
    return rf"{end}|[_\-](?:{end})|[_\-]{{2}}(?:{end})"


API_KEY = Detector(
    name="api_key",
    label="API_KEY",
    title="API key",
    formats=(
        Format(rf"(?:{_any_of(issuer.lead for issuer in WORDS)})[A-Za-z0-9_]+", KEY_BEFORE, _after("A-Za-z0-9_")),
        Format(rf"(?:{_any_of(issuer.lead for issuer in TOKENS)}){_TOKEN}+", KEY_BEFORE, _after(r"A-Za-z0-9_\-")),
    ),
    validate=is_api_key,
    # In two halves, so that scanners of repositories do not take them for leaks.
    examples=(
        "AKIA" + "IOSFODNN7EXAMPLE",
        "ghp_" + "zQWBuTSOoRi4A9spHcVY5ncnsDkxkJ0mLq17",
        "npm_" + "zQWBuTSOoRi4A9spHcVY5ncnsDkxkJ0mLq17",
        "github_pat_" + "11ABCDEFG0abcdefghijkl_0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVW",
        "xoxb-" + "17653672481-19874698323-pdFZKVeTuE8sk7oOcHrzqqgy",
        "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc",
        "sk-" + "1234567890abcdefghijT3BlbkFJ1234567890abcdefghij",
        "sk-proj-" + "AbCdEf0123456789_AbCdEf0123456789-AbCdEf0123456789",
        "sk-ant-" + "api03-AbCdEf0123456789_AbCdEf0123456789-AbCdEf0123456789_AbCdEf0123456789-AbCdEf0123456789AbAA",
        "AIza" + "SyDaGmWKa4JsXZ-HjGw7ISLn_3namBGewQe",
        "glpat-" + "z_sxgtrfAxKr8q1TPY8Y",
        "pypi-" + "AgEIcHlwaS5vcmcCJDg5NjFjNTBmLTQ4MzEtNDk3Mi1hMGIxLTEyMzQ1Njc4OWFiYwACKlszLCJhYmNkIl0",
        "SG." + "ngeVfQFYQlKU0ufo8x5d1A.TwL2iGABf9DHoTf-09kqeF8tAmbihYzrnopKc-1s5cr",
        "SK" + "0123456789abcdef0123456789abcdef",
        "hf_" + "AbCdEfGhIjKlMnOpQrStUvWxYzAbCdEfGh",
        "dop_v1_" + "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    ),
    source=f"The issuers' own pages, which docs/detectors.md lists; of GitHub's checksum, {_GITHUB}",
    note=(
        "GitHub's and npm's tokens must carry the right checksum, where their form has one. Keys without a fixed "
        "beginning, such as an AWS secret access key, are left out: nothing tells them from other random text."
    ),
)
