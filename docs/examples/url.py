"""A model that is asked for an address and has to give one, whatever it would rather say."""

from ziplm import LETTERS, letters, tokens_of, ziplm

from gateway.decode.generate import generate
from gateway.decode.guide import Guide, regex

URL = r"(?:https?://www\.|https?://)[a-zA-Z]{2,20}\.(?:com|ai|org|edu)"
TRAINING = "listen to music at https://www.music.org, read about songs at http://songs.com"
PROMPT = "where can i listen to pink floyd songs "

vocabulary = letters(LETTERS + LETTERS.upper() + ":/.? ")
answer = generate(
    ziplm(TRAINING, vocabulary),
    tokens_of(PROMPT, vocabulary),
    vocabulary,
    constrain=Guide(regex(URL), vocabulary),
    max_tokens=60,
    seed=4,
)
print(answer.text)
