"""The translation of each dialect that has one."""

from __future__ import annotations

from gateway.wire.dialect import Translation
from gateway.wire.translation import messages_request, responses_request
from gateway.wire.translation.messages_answer import MessagesEncoder
from gateway.wire.translation.responses_answer import ResponsesEncoder

RESPONSES = Translation(responses_request.to_chat, ResponsesEncoder)
MESSAGES = Translation(messages_request.to_chat, MessagesEncoder)
