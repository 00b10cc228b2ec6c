"""Rules and formats enforced while the model writes, token by token.

Structured output: a language a model is held to.

    guide         a language × a vocabulary → the tokens that may come next
    compiled      a guide as tables, to be saved and loaded
    grammar       the same for JSON schemas and grammars, through llguidance
    constraints   a policy's constraint: parameters for an engine, and the check of its answer by acceptors, which read
                  every spelling of a JSON text as one

Logit masks: words a model is kept from.

    masks         banned words × a vocabulary → the tokens that must not come next: a lens_mask for each lens, over a
                  folded_vocabulary
    maskfile      which words of a configuration's policies are banned, and the file that carries them to a server
    vllm_plugin   masks on vLLM, an answer for each request

Rollback: an answer cut back to before a match.

    rollback      where to cut, what to ban there, when to give up; which characters are whose token's

And `vocabulary` reads what a model's tokens are, in bytes; `generate` is the reference loop over any model.

Nothing is imported here: the plugin for vLLM takes what it needs and no more.
"""
