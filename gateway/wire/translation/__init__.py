"""A client's dialect over an upstream that only speaks chat completions.

The request is translated first (`responses_request`, `messages_request`) and guarded as a chat request; the answer is
guarded in chat's form and then written as the client's dialect (`responses_answer`, `messages_answer`). What cannot be
translated is refused by name: a client must not believe that something took effect which did not.
"""
