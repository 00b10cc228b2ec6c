"""API keys of well-known issuers: their beginnings and lengths were chosen to make them findable.

The forms below come from the issuers' own pages or from public examples; more come from a third-party rule set and
further examples (`issuers.py`). A key of GitHub or npm with a wrong checksum is found if it looks random, since one
wrong character leaves most of the real key; with the right one it is found whatever it looks like.

The machine follows everything that begins like a key up to its end; there the whole is compared, which costs the
machine a few states for each issuer and not one for each character.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable
from typing import NamedTuple
from zlib import crc32

from gateway.censor.detectors.issuers import DIVISIONS, Kept, branches, is_kept_key, is_random
from gateway.censor.detectors.model import Detector, Format
from gateway.censor.detectors.secrets import KEY_BEFORE


class Issuer(NamedTuple):
    """The issuer of keys that begin with `lead` and continue with `rest`, regular expressions. `page` documents them;
    without one the form is taken from public examples. `random`: what has the form and does not look random is a name
    or a placeholder.
    """

    name: str
    lead: str
    rest: str
    page: str = ""
    random: bool = False

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
_GOOGLE_TOKENS = "https://developers.google.com/identity/protocols/oauth2"
_DISCORD = "https://discord.com/developers/docs/resources/webhook"
_DISCORD_BOT = "https://discord.com/developers/docs/reference#authentication"
_TEAMS = "https://learn.microsoft.com/en-us/microsoftteams/platform/webhooks-and-connectors/how-to/add-incoming-webhook"
_SLACK_WEBHOOKS = "https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks"
_ZAPIER = "https://help.zapier.com/hc/en-us/articles/8496288690317-Trigger-Zaps-from-webhooks"
_ENTRA = "https://learn.microsoft.com/en-us/entra/identity-platform/how-to-add-credentials"
_TERRAFORM = "https://developer.hashicorp.com/terraform/cloud-docs/users-teams-organizations/api-tokens"
_VAULT = "https://developer.hashicorp.com/vault/docs/concepts/tokens"
_UUID = f"{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}"

# Made of letters, digits and _ only: a hyphen ends them.
WORDS = (
    Issuer("AWS", "A(?:KIA|SIA|BIA|CCA|3T[A-Z0-9])", "[A-Z2-7]{16}", _AWS),
    Issuer("GitHub", "gh[oprsu]_", f"{_WORD}{{36}}", _GITHUB, random=True),
    Issuer("GitHub", "github_pat_", f"{_WORD}{{22}}_{_WORD}{{59}}", _GITHUB),
    Issuer("npm", "npm_", f"{_WORD}{{36}}", _NPM, random=True),
    Issuer("Stripe", "[rs]k_(?:live|test)_", f"{_WORD}{{16,}}", "https://docs.stripe.com/keys"),
    Issuer("Stripe", "whsec_", f"{_WORD}{{32,}}", "https://docs.stripe.com/webhooks"),
    Issuer("Twilio", f"(?:AC|SK){_HEX}{{6}}", f"{_HEX}{{26}}", "https://www.twilio.com/docs/glossary/what-is-a-sid"),
    Issuer("Hugging Face", "hf_", f"{_WORD}{{34}}", "https://huggingface.co/docs/hub/security-tokens"),
    Issuer("DigitalOcean", "do[opr]_v1_", f"{_HEX}{{64}}", _DIGITALOCEAN),
    Issuer("Shopify", "shp(?:at|ca|pa|ss)_", "[0-9A-Fa-f]{32}", "https://shopify.dev/docs/apps/build/authentication"),
    Issuer("Databricks", "dapi", f"{_HEX}{{32}}", "https://docs.databricks.com/en/dev-tools/auth/pat.html"),
    Issuer("Grafana", "glsa_", f"{_WORD}{{32}}_[0-9A-Fa-f]{{8}}", _GRAFANA),
    Issuer("Groq", "gsk_", f"{_WORD}{{52}}", "https://console.groq.com/docs/quickstart"),
    Issuer("Notion", "secret_", f"{_WORD}{{43}}", "https://developers.notion.com/docs/authorization"),
    Issuer(
        "Meta",
        "EAA[A-Z]",
        f"{_WORD}{{90,}}",
        "https://developers.facebook.com/docs/facebook-login/guides/access-tokens",
    ),
    Issuer(
        "Mailchimp", f"{_HEX}{{32}}-us", "[0-9]{1,2}", "https://mailchimp.com/developer/marketing/guides/quick-start/"
    ),
    Issuer("New Relic", f"{_HEX}{{36}}", "NRAL"),
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
    Issuer("Telegram", "[0-9]{8,10}:AA", f"{_TOKEN}{{33}}", "https://core.telegram.org/bots/api#authorizing-your-bot"),
    Issuer("Discord", rf"[MNO]{_WORD}{{23,25}}\.{_TOKEN}{{6}}\.", f"{_TOKEN}{{27,38}}", _DISCORD_BOT),
    Issuer(
        "Firebase",
        f"AAAA{_TOKEN}{{7}}:",
        f"{_TOKEN}{{140}}",
        "https://firebase.google.com/docs/cloud-messaging/auth-server",
    ),
    Issuer("Google", "1//0", f"{_TOKEN}{{40,}}", _GOOGLE_TOKENS),
    Issuer(
        "Square",
        "sq0(?:csp|idp)-",
        f"{_TOKEN}{{22,60}}",
        "https://developer.squareup.com/docs/build-basics/access-tokens",
    ),
    Issuer(
        "Discord",
        r"(?:https://)?(?:(?:canary|ptb)\.)?discord(?:app)?\.com/api/(?:v[0-9]+/)?webhooks/[0-9]{17,20}/",
        f"{_TOKEN}{{60,80}}",
        _DISCORD,
    ),
    Issuer(
        "Microsoft Teams",
        rf"webhook\.office\.com/webhookb2/[0-9a-f\-]{{36}}@[0-9a-f\-]{{36}}/IncomingWebhook/{_HEX}{{32}}/",
        f"{_TOKEN}{{36,}}",
        _TEAMS,
    ),
    Issuer("GC Notify", "gcntfy-", f"{_TOKEN}{{73,}}", "https://documentation.notification.canada.ca/en/keys.html"),
    Issuer("Mailgun", f"{_HEX}{{32}}-{_HEX}{{8}}-", f"{_HEX}{{8}}"),
    Issuer("Meta", r"[0-9]{13,17}\|", f"{_TOKEN}{{27}}", random=True),
    Issuer("age", "AGE-SECRET-KEY-1", "[AC-HJ-NP-Z02-9]{58}", "https://age-encryption.org/v1"),
)


# Made of what base64 and addresses have.
OTHERS = (
    Issuer("Slack", r"hooks\.slack\.com/(?:services|workflows|triggers)/", r"[A-Za-z0-9+/]{43,56}", _SLACK_WEBHOOKS),
    Issuer("Asana", r"[12]/[0-9]{13,20}(?:/[0-9]{13,20})?:", f"{_HEX}{{32}}"),
    Issuer("DataStax", f"AstraCS:{_WORD}{{24}}:", f"{_HEX}{{64}}"),
    Issuer("Braintree", r"access_token\$(?:production|sandbox)\$[0-9a-z]{16}\$", f"{_HEX}{{32}}"),
    Issuer("Bitwarden", rf"0\.{_UUID}\.{_WORD}{{30}}:", "[A-Za-z0-9+/]{22}=="),
    Issuer("Salesforce", rf"00D{_WORD}{{12,15}}!", r"[A-Za-z0-9_.]{80,120}"),
    Issuer("Microsoft Entra ID", rf"[01]\.A{_TOKEN}{{20,100}}\.Ag", f"{_TOKEN}{{80,}}"),
    Issuer("Make", r"hook\.(?:[a-z]{2}[0-9]\.)?make\.com/", "[a-z0-9]{32}"),
    Issuer(
        "IFTTT",
        r"maker\.ifttt\.com/(?:use|trigger/[^/\s]{1,64}(?:/json)?/with/key)/",
        f"{_TOKEN}{{20,45}}",
    ),
    Issuer(
        "Google Chat",
        rf"chat\.googleapis\.com/v1/spaces/{_TOKEN}+/messages\?key={_TOKEN}{{39}}&token=",
        f"{_TOKEN}{{30,60}}",
    ),
    Issuer(
        "Azure Logic Apps",
        r"logic\.azure\.com(?::443)?/workflows/[0-9a-f]{32}/triggers/[^\s\"']{1,200}[?&]sig=",
        f"{_TOKEN}{{40,60}}",
    ),
    Issuer("Zapier", r"hooks\.zapier\.com/hooks/catch/[0-9]+/", "[A-Za-z0-9]{5,}", _ZAPIER),
)
_OTHER = r"[A-Za-z0-9_+/=~\-]"
# Longer than what may be held: known by their beginning, and swallowed from there on.
_LONG = 80
_PIECE = 2
_SAME = 12  # characters at the end, all the same: with no more than so many before them, it is a placeholder
_LONG_OTHER = r"[A-Za-z0-9_+/=%\-]"
LONG = (
    Issuer("Google", r"ya29\.(?:c\.)?", f"{_LONG_OTHER}{{{_LONG},}}", _GOOGLE_TOKENS),
    Issuer("AWS", "bedrock-api-key-", f"{_LONG_OTHER}{{{_LONG},}}"),
    Issuer("Fly.io", "fm[12][ar]?_", f"{_LONG_OTHER}{{{_LONG},}}", "https://fly.io/docs/security/tokens/"),
    Issuer("Slack", "xoxd-", f"{_LONG_OTHER}{{{_LONG},}}", _SLACK),
    Issuer("Dropbox", r"sl\.(?:u\.)?", f"{_LONG_OTHER}{{{_LONG},}}", "https://developers.dropbox.com/oauth-guide"),
)
# After characters that any word may begin with, and that are kept.
BEHIND = (
    (f"{_OTHER}{{3}}[0-9]", Issuer("Microsoft Entra ID", "Q~", r"[A-Za-z0-9_~.\-]{31,34}", _ENTRA)),
    (r"https?://[A-Za-z0-9.\-:]{4,80}", Issuer("Mattermost", "/hooks/", "[a-z0-9]{26}")),
    (f"{_WORD}{{14}}", Issuer("HCP Terraform", r"\.atlasv1\.", r"[A-Za-z0-9_=\-]{60,}", _TERRAFORM)),
)
OWN = (*WORDS, *TOKENS, *OTHERS, *LONG, *(issuer for _, issuer in BEHIND))


def _any_of(forms: Iterable[str]) -> str:
    return "|".join(dict.fromkeys(forms))


def _leads(issuers: Iterable[Issuer], kept: Iterable[Kept] = ()) -> str:
    """An expression for how the keys of any of them begin."""
    literal = {lead for each in kept for lead in each.leads}
    return f"(?:{_any_of([*(issuer.lead for issuer in issuers), *branches(literal)])})"


_FORMS = re.compile(_any_of(issuer.form for issuer in OWN))
_CHECKED = re.compile(_any_of(issuer.form for issuer in OWN if issuer.random))
_BASE62 = string.digits + string.ascii_uppercase + string.ascii_lowercase


def is_api_key(text: str) -> bool:
    """Is the whole in one of the forms, and if it must be, random or with the right checksum? Pieces from inside a long
    key are accepted: their context has its beginning."""
    if len(text) <= _PIECE:
        return True
    before = len(text.rstrip(text[-1]))
    if before <= _SAME <= len(text) - before:
        return False  # such as sk_live_xxxxxxxxxxxxxxxxxxxxxxxx; a key may have such an end as well
    if _FORMS.fullmatch(text) is None:
        return is_kept_key(text)
    # The number of an application, in front of its secret, does not look random.
    return _CHECKED.fullmatch(text) is None or is_random(text.rpartition("|")[2]) or checksum(text[4:-6]) == text[-6:]


def checksum(random: str) -> str:
    """The CRC-32 of the random part of a key of GitHub or npm, in base 62 with leading zeros to six characters."""
    rest, written = crc32(random.encode()), ""
    while rest:
        rest, digit = divmod(rest, 62)
        written = _BASE62[digit] + written
    return written.rjust(6, "0")


def _after(token: str) -> str:
    """What may follow a key: no further character of it, but up to two signs, as Markdown's emphasis has them."""
    end = rf"$|[^{token}]"
    return rf"{end}|[_\-](?:{end})|[_\-]{{2}}(?:{end})"


_WORD_CHARS, _TOKEN_CHARS = "A-Za-z0-9_", r"A-Za-z0-9_\-"
_LONG_LEADS = f"{_leads(LONG)}{_LONG_OTHER}{{{_LONG - 1}}}"
# Dots divide a key, and one that ends a sentence is none of it.
_OTHER_RUN = rf"{_OTHER}+(?:\.{_OTHER}+)*"

API_KEY = Detector(
    name="api_key",
    label="API_KEY",
    title="API key",
    formats=(
        Format(f"{_leads(WORDS, DIVISIONS['words'])}[{_WORD_CHARS}]+", KEY_BEFORE, _after(_WORD_CHARS)),
        Format(f"{_leads(TOKENS, DIVISIONS['tokens'])}{_TOKEN}+", KEY_BEFORE, _after(_TOKEN_CHARS)),
        Format(
            _leads(OTHERS, DIVISIONS["others"]) + _OTHER_RUN,
            KEY_BEFORE,
            r"$|[^A-Za-z0-9_+/=~.\-]|\.(?:$|[^A-Za-z0-9_+/=~\-])",
        ),
        Format(f"{_LONG_LEADS}{_LONG_OTHER}", KEY_BEFORE),
        Format(rf"{_LONG_OTHER}\.?{_LONG_OTHER}", rf"{KEY_BEFORE}{_LONG_LEADS}[A-Za-z0-9_+/=%.\-]*"),
        *(Format(issuer.form, KEY_BEFORE + before) for before, issuer in BEHIND),
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
    source=f"Pages of the issuers, such as {_GITHUB}, and where docs/detectors.md says so, public examples",
    note=(
        "A key of GitHub or npm has the right checksum or looks random. Keys without a fixed prefix, such as an AWS "
        "secret access key, are not found: nothing distinguishes them from other random text."
    ),
)
