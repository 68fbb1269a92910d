"""How a model is asked and how it answers, in the four protocols that coding assistants speak.

Each protocol reads a request into what a script needs to know, and writes a turn as one document or as events. Only as
much of each is here as the assistants look at. What is asked comes from a program that we started: nothing is checked.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple, Protocol, TypeAlias
from uuid import uuid4

from tests.agents.script import Call, Say, Step

__all__ = ["PROTOCOLS", "Asked", "Event", "Speech", "protocol_of"]

Json: TypeAlias = dict[str, Any]
USAGE: Final = {"input_tokens": 10, "output_tokens": 5}
CALLS: Final = frozenset({"function_call", "custom_tool_call"})


class Asked(NamedTuple):
    """A request: what was said before the model first spoke, its turns since, whether it has tools, for which model."""

    opening: str
    turns: int
    tools: bool
    stream: bool
    model: str


class Event(NamedTuple):
    """One event of an answer; a nameless one has data only."""

    name: str
    data: Json | str


class Speech(Protocol):
    """One protocol."""

    def read(self, body: Json) -> Asked:
        """Return what was asked."""
        ...

    def whole(self, asked: Asked, steps: Sequence[Step]) -> Json:
        """Return the answer as one document."""
        ...

    def events(self, asked: Asked, steps: Sequence[Step]) -> Iterator[Event]:
        """Yield the answer piece by piece."""
        ...


def _text(content: Any) -> str:
    """Return the words in any content, without those of results of tools."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(map(_text, content))
    if isinstance(content, dict):
        return "\n".join(_text(content[name]) for name in ("text", "content", "parts") if name in content)
    return ""


def _asked(body: Json, items: Iterable[tuple[bool, str]], *, stream: bool) -> Asked:
    """Read a conversation from its items: whether the model made each, and its words."""
    opening: list[str] = []
    turns = 0
    for by_model, group in groupby(items, key=lambda item: item[0]):
        if by_model:
            turns += 1
        elif not turns:
            opening = [words for _, words in group]
    return Asked("\n".join(opening), turns, bool(body.get("tools")), stream, str(body.get("model", "stand-in")))


def _id(prefix: str) -> str:
    return f"{prefix}_{uuid4().hex[:24]}"


class Messages:
    """Anthropic Messages, as Claude Code speaks it."""

    def read(self, body: Json) -> Asked:
        """Return what was asked."""
        items = ((message["role"] == "assistant", _text(message["content"])) for message in body.get("messages", ()))
        return _asked(body, items, stream=bool(body.get("stream")))

    def whole(self, asked: Asked, steps: Sequence[Step]) -> Json:
        """Return the answer as one document."""
        content = [self._block(step) for step in steps]
        calls = any(block["type"] == "tool_use" for block in content)
        return {
            "id": _id("msg"),
            "type": "message",
            "role": "assistant",
            "model": asked.model,
            "content": content,
            "stop_reason": "tool_use" if calls else "end_turn",
            "stop_sequence": None,
            "usage": {**USAGE, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0},
        }

    def _block(self, step: Step) -> Json:
        if isinstance(step, Call):
            return {"type": "tool_use", "id": _id("toolu"), "name": step.tool, "input": step.arguments}
        return {"type": "text", "text": _said(step)}

    def events(self, asked: Asked, steps: Sequence[Step]) -> Iterator[Event]:
        """Yield the answer piece by piece."""
        message = self.whole(asked, steps)
        yield _typed("message_start", message={**message, "content": [], "stop_reason": None})
        for index, block in enumerate(message["content"]):
            if block["type"] == "text":
                empty, delta = {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
            else:
                empty = {**block, "input": {}}
                delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
            yield _typed("content_block_start", index=index, content_block=empty)
            yield _typed("content_block_delta", index=index, delta=delta)
            yield _typed("content_block_stop", index=index)
        ended = {"stop_reason": message["stop_reason"], "stop_sequence": None}
        yield _typed("message_delta", delta=ended, usage=message["usage"])
        yield _typed("message_stop")


def _typed(kind: str, **members: Any) -> Event:
    return Event(kind, {"type": kind, **members})


def _said(step: Step) -> str:
    return step.text if isinstance(step, Say) else ""


class Responses:
    """OpenAI Responses, as Codex speaks it."""

    def read(self, body: Json) -> Asked:
        """Return what was asked."""
        items = ((self._by_model(item), _text(item.get("content"))) for item in body.get("input", ()))
        return _asked(body, items, stream=bool(body.get("stream")))

    def _by_model(self, item: Json) -> bool:
        return item.get("type") in CALLS or item.get("role") == "assistant"

    def whole(self, asked: Asked, steps: Sequence[Step]) -> Json:
        """Return the answer as one document."""
        return {
            "id": _id("resp"),
            "object": "response",
            "created_at": 0,
            "status": "completed",
            "model": asked.model,
            "output": [self._item(step) for step in steps],
            "usage": {
                **USAGE,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": sum(USAGE.values()),
            },
        }

    def _item(self, step: Step) -> Json:
        if not isinstance(step, Call):
            content = [{"type": "output_text", "text": _said(step), "annotations": []}]
            return {
                "type": "message",
                "id": _id("msg"),
                "role": "assistant",
                "status": "completed",
                "content": content,
            }
        made: Json = {"call_id": _id("call"), "name": step.tool, "status": "completed"}
        if isinstance(step.arguments, str):
            return {"type": "custom_tool_call", "id": _id("ctc"), "input": step.arguments, **made}
        if step.namespace:
            made["namespace"] = step.namespace
        return {"type": "function_call", "id": _id("fc"), "arguments": json.dumps(step.arguments), **made}

    def events(self, asked: Asked, steps: Sequence[Step]) -> Iterator[Event]:
        """Yield the answer piece by piece."""
        response = self.whole(asked, steps)
        yield _typed("response.created", response={**response, "status": "in_progress", "output": []})
        for index, item in enumerate(response["output"]):
            yield _typed("response.output_item.added", output_index=index, item=item)
            yield _typed("response.output_item.done", output_index=index, item=item)
        yield _typed("response.completed", response=response)


class Chat:
    """OpenAI Chat Completions, as opencode and Copilot speak it."""

    def read(self, body: Json) -> Asked:
        """Return what was asked."""
        messages = [message for message in body.get("messages", ()) if message["role"] not in {"system", "developer"}]
        items = ((message["role"] == "assistant", _text(message.get("content"))) for message in messages)
        return _asked(body, items, stream=bool(body.get("stream")))

    def whole(self, asked: Asked, steps: Sequence[Step]) -> Json:
        """Return the answer as one document."""
        text, calls = self._parts(steps)
        message = {"role": "assistant", "content": text or None, **({"tool_calls": calls} if calls else {})}
        choice = {"index": 0, "finish_reason": self._reason(calls), "message": message}
        return {**self._head(asked, "chat.completion"), "choices": [choice], "usage": self._usage()}

    def _parts(self, steps: Sequence[Step]) -> tuple[str, list[Json]]:
        made = [step for step in steps if isinstance(step, Call)]
        calls = [
            {
                "index": index,
                "id": _id("call"),
                "type": "function",
                "function": {"name": step.tool, "arguments": json.dumps(step.arguments)},
            }
            for index, step in enumerate(made)
        ]
        return "".join(map(_said, steps)), calls

    def _reason(self, calls: list[Json]) -> str:
        return "tool_calls" if calls else "stop"

    def _head(self, asked: Asked, kind: str) -> Json:
        return {"id": _id("chatcmpl"), "object": kind, "created": 0, "model": asked.model}

    def _usage(self) -> Json:
        return {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}

    def events(self, asked: Asked, steps: Sequence[Step]) -> Iterator[Event]:
        """Yield the answer piece by piece."""
        text, calls = self._parts(steps)
        head = self._head(asked, "chat.completion.chunk")
        deltas: list[tuple[Json, str | None]] = [({"role": "assistant", "content": text}, None)]
        deltas += [({"tool_calls": [call]}, None) for call in calls]
        deltas.append(({}, self._reason(calls)))
        for delta, reason in deltas:
            yield Event("", {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})
        yield Event("", {**head, "choices": [], "usage": self._usage()})
        yield Event("", "[DONE]")


class Gemini:
    """Gemini's generateContent, as Gemini CLI speaks it; whether as a stream is in the path."""

    def __init__(self, *, stream: bool) -> None:
        self.stream = stream

    def read(self, body: Json) -> Asked:
        """Return what was asked."""
        items = ((content.get("role") == "model", _text(content)) for content in body.get("contents", ()))
        return _asked(body, items, stream=self.stream)

    def whole(self, asked: Asked, steps: Sequence[Step]) -> Json:
        """Return the answer as one document."""
        content = {"role": "model", "parts": [self._part(step) for step in steps]}
        return {
            "candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
            "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15},
            "modelVersion": asked.model,
            "responseId": _id("resp"),
        }

    def _part(self, step: Step) -> Json:
        if isinstance(step, Call):
            return {"functionCall": {"id": _id("call"), "name": step.tool, "args": step.arguments}}
        return {"text": _said(step)}

    def events(self, asked: Asked, steps: Sequence[Step]) -> Iterator[Event]:
        """Yield the answer in one piece, as it has no smaller ones."""
        yield Event("", self.whole(asked, steps))


PROTOCOLS: Final[dict[str, Speech]] = {
    "/messages": Messages(),
    "/responses": Responses(),
    "/chat/completions": Chat(),
    ":generateContent": Gemini(stream=False),
    ":streamGenerateContent": Gemini(stream=True),
}


def protocol_of(path: str) -> Speech | None:
    """Return the protocol that a path belongs to."""
    return next((speech for ending, speech in PROTOCOLS.items() if path.endswith(ending)), None)
