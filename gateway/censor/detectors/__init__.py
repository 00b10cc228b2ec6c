"""Named patterns with validators, for values that have a public specification: what `detector:` in a rule can name.

Two ideas make them fit for a stream. Every form has a left edge, so that prose begins a match only where a value could
begin. And what may be longer than a text may be held (a URL, a token, a private key) is not one match: its beginning
is, and then every two neighbouring characters after such a beginning, so that the run of them is swallowed as it
comes, however long.
"""

from gateway.censor.detectors.credentials import CREDENTIAL
from gateway.censor.detectors.hidden import HIDDEN_TEXT
from gateway.censor.detectors.identity import NATIONAL_ID, PASSPORT
from gateway.censor.detectors.keys import API_KEY
from gateway.censor.detectors.model import Detector, Format
from gateway.censor.detectors.network import EMAIL, IPV4, IPV6, MAC_ADDRESS, URL
from gateway.censor.detectors.numbers import CREDIT_CARD, IBAN, US_SSN
from gateway.censor.detectors.particulars import COORDINATES, DATE_OF_BIRTH
from gateway.censor.detectors.phones import PHONE
from gateway.censor.detectors.private_keys import PRIVATE_KEY
from gateway.censor.detectors.secrets import JWT
from gateway.censor.detectors.wallets import CRYPTO_ADDRESS, WALLET_SECRET

__all__ = ["DETECTORS", "Detector", "Format"]

DETECTORS: dict[str, Detector] = {
    detector.name: detector
    for detector in (
        EMAIL,
        CREDIT_CARD,
        IBAN,
        US_SSN,
        PHONE,
        IPV4,
        IPV6,
        MAC_ADDRESS,
        URL,
        JWT,
        PRIVATE_KEY,
        API_KEY,
        CREDENTIAL,
        NATIONAL_ID,
        PASSPORT,
        DATE_OF_BIRTH,
        COORDINATES,
        CRYPTO_ADDRESS,
        WALLET_SECRET,
        HIDDEN_TEXT,
    )
}
