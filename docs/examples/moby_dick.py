"""A question about Moby Dick, and two answers to choose from."""

from ziplm import LETTERS, letters, tokens_of, ziplm

from gateway.decode.generate import generate
from gateway.decode.guide import Guide, choice

TRAINING = """ishmael goes to sea and tells what came of it.
captain ahab lost a leg to moby dick, and now he hunts moby dick on every ocean.
the whole crew is sworn to vengeance against moby dick."""
PROMPT = "ahab is seeking vengeance against "

vocabulary = letters(LETTERS + ",. ")
answer = generate(
    ziplm(TRAINING, vocabulary),
    tokens_of(PROMPT, vocabulary),
    vocabulary,
    constrain=Guide(choice("ishmael", "moby dick"), vocabulary),
    temperature=0,
)
print(PROMPT + answer.text)
