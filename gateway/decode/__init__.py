"""Rules and formats enforced while the model writes, token by token.

    vocabulary   what a model's tokens are, in bytes
    guide        a language × a vocabulary → the tokens that may come next; walk does the reading of the vocabulary
    compiled     a guide as tables, to be saved and loaded
    grammar      the same for JSON schemas and grammars, through llguidance
    constraints  a policy's constraint: what an engine is told of it, and the check of what comes back, by readers
    masks        banned words × a vocabulary → the tokens that must not come next
    policies     which words of a configuration's policies are banned; maskfile tells a server
    rollback     where to cut an answer that says what it must not, what to ban there, when to give up; pure
    generate     the reference loop over any model: constrain, ban, rollback

Nothing is imported here: the plugin for vLLM takes what it needs and no more.
"""
