"""The contract as an AsyncAPI 3.0 document: who sends what on which subject, and who answers.

https://www.asyncapi.com/docs/reference/specification/v3.0.0
"""

from typing import Any

from hookbus_schemas.message import VERSION

Object = dict[str, Any]

PARAMETERS = {
    "hook": "Name of a hook, escaped to one token (vectors/subjects.json).",
    "executor": "Name of an executor, escaped to one token; permissions vouch for it.",
    "tool": "Name of a tool, escaped to one token.",
    "token": "128 random bits in hexadecimal, new for each hook and call.",
}

CHANNELS = (
    ("toolBefore", "tool.before.{hook}.{executor}", "toolHookContext", "One executor asks one hook about one call."),
    ("reply", "reply.{executor}.{hook}.{token}", "decision", "One hook answers one executor, once."),
    ("toolAfter", "tool.after.{executor}.{tool}", "toolAfterEvent", "A call ran. In the stream TOOL_EVENTS."),
    ("toolDenied", "tool.denied.{executor}.{tool}", "toolDeniedEvent", "A call was stopped. In TOOL_EVENTS."),
    (
        "hooksChanged",
        "hooks.changed.{hook}",
        "hookRegistration",
        "The server republishes a change of the bucket HOOKS.",
    ),
)

MESSAGES = (
    ("toolHookContext", "tool_hook_context", "application/msgpack"),
    ("decision", "decision", "application/msgpack"),
    ("toolAfterEvent", "tool_after_event", "application/msgpack"),
    ("toolDeniedEvent", "tool_denied_event", "application/msgpack"),
    ("hookRegistration", "hook_registration", "application/json"),
    ("toolHookContextJson", "tool_hook_context", "application/json"),
    ("decisionJson", "decision", "application/json"),
)

IN_JSON = {"toolHookContext": "toolHookContextJson", "decision": "decisionJson"}
"""What is in JSON where the hook's registration says so."""

HEADERS = {
    "toolAfterEvent": "afterHeaders",
    "toolDeniedEvent": "deniedHeaders",
    "hookRegistration": "changeHeaders",
    "toolHookContextJson": "jsonRequestHeaders",
}

OPERATIONS = (
    ("executor", "askHook", "send", "toolBefore", "Publishes one request to each hook that applies, all at once."),
    ("executor", "receiveAnswer", "receive", "reply", "Subscribes once to reply.<executor>.> for all its answers."),
    (
        "executor",
        "recordCall",
        "send",
        "toolAfter",
        "Repeats under the same Nats-Msg-Id until the stream acknowledges.",
    ),
    (
        "executor",
        "recordDenial",
        "send",
        "toolDenied",
        "Repeats under the same Nats-Msg-Id until the stream acknowledges.",
    ),
    (
        "executor",
        "followRegistrations",
        "receive",
        "hooksChanged",
        "Subscribes to hooks.changed.> and reads the bucket.",
    ),
    ("hook", "decide", "receive", "toolBefore", "Replicas subscribe to tool.before.<hook>.* in one queue group."),
    (
        "hook",
        "answer",
        "send",
        "reply",
        "Publishes to the request's reply subject if it begins reply.<executor>.<hook>.",
    ),
    ("consumer", "readCalls", "receive", "toolAfter", "Reads the stream TOOL_EVENTS by a durable consumer."),
    ("consumer", "readDenials", "receive", "toolDenied", "Reads the stream TOOL_EVENTS by a durable consumer."),
)

ANSWERED = ("askHook", "decide")
"""The operations that are request and reply."""


def asyncapi() -> Object:
    """Return the document."""
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "hookbus",
            "version": f"{VERSION}.0.0",
            "description": "Tool-call hooks on NATS: ask every hook before a tool runs, record every call after it.",
        },
        "defaultContentType": "application/msgpack",
        "servers": {"nats": {"host": "127.0.0.1:4222", "protocol": "nats"}},
        "channels": {**{name: _channel(address, *about) for name, address, *about in CHANNELS}, "replyTo": _reply_to()},
        "operations": {name: _operation(view, name, *about) for view, name, *about in OPERATIONS},
        "components": {
            "messages": {name: _message(name, *about) for name, *about in MESSAGES},
            "schemas": {
                "afterHeaders": _event_headers("hookbus.tool:after"),
                "deniedHeaders": _event_headers("hookbus.tool:denied"),
                "changeHeaders": _change_headers(),
                "jsonRequestHeaders": _json_request_headers(),
            },
        },
    }


def _channel(address: str, message: str, description: str) -> Object:
    parameters = {name: {"description": words} for name, words in PARAMETERS.items() if f"{{{name}}}" in address}
    messages = _either_encoding(message)
    return {"address": address, "description": description, "messages": messages, "parameters": parameters}


def _reply_to() -> Object:
    """Return the channel ``reply`` as a request names it: AsyncAPI wants no address where the message brings it."""
    return {
        "address": None,
        "description": "The channel `reply`, by the request's reply subject.",
        "messages": _either_encoding("decision"),
    }


def _either_encoding(message: str) -> Object:
    names = [message, IN_JSON[message]] if message in IN_JSON else [message]
    return {name: _ref("components/messages", name) for name in names}


def _operation(view: str, name: str, action: str, channel: str, description: str) -> Object:
    operation: Object = {
        "action": action,
        "channel": _ref("channels", channel),
        "description": description,
        "tags": [{"name": view}],
    }
    if name in ANSWERED:
        where = "The reply subject of the NATS message, a protocol field beside its headers."
        address = {"location": "$message.header#/replyTo", "description": where}
        operation["reply"] = {"address": address, "channel": _ref("channels", "replyTo")}
    if name == "decide":
        operation["bindings"] = {"nats": {"queue": "{hook}", "bindingVersion": "0.1.0"}}
    return operation


def _message(name: str, stem: str, content_type: str) -> Object:
    headers = {"headers": _ref("components/schemas", HEADERS[name])} if name in HEADERS else {}
    payload = {
        "schemaFormat": "application/schema+json;version=2020-12",
        "schema": {"$ref": f"./json/{stem}.schema.json"},
    }
    return {"name": name, "contentType": content_type, **headers, "payload": payload}


def _event_headers(event_type: str) -> Object:
    """Return CloudEvents 1.0 in the binary mode of its NATS binding, and the id by which the stream drops copies."""
    text: Object = {"type": "string"}
    properties: Object = {
        "Nats-Msg-Id": {**text, "description": "The event_id."},
        "ce-specversion": {**text, "const": "1.0"},
        "ce-id": {**text, "description": "The event_id."},
        "ce-type": {**text, "const": event_type},
        "ce-source": {**text, "description": "/executors/ and the executor's name as one token."},
        "ce-time": {**text, "format": "date-time"},
        "content-type": {**text, "const": "application/msgpack"},
    }
    return {"type": "object", "required": list(properties), "properties": properties}


def _json_request_headers() -> Object:
    """Return what a person needs beside a request in JSON."""
    properties: Object = {
        "content-type": {"type": "string", "const": "application/json"},
        "Hookbus-Request-Digest": {"type": "string", "description": "What the answer must hold as request_digest."},
    }
    return {"type": "object", "required": list(properties), "properties": properties}


def _change_headers() -> Object:
    """Return what the server adds to a republished change."""
    revision = {"type": "string", "description": "The revision, in decimal."}
    gone = {"type": "string", "enum": ["DEL", "PURGE"], "description": "Registered no more; no payload."}
    gone_too = {"type": "string", "description": "The same, by the server itself (NATS ADR-43)."}
    always = {
        "Nats-Stream": {"type": "string", "const": "KV_HOOKS"},
        "Nats-Subject": {"type": "string", "description": "$KV.HOOKS. and the hook's name as one token."},
        "Nats-Sequence": revision,
    }
    return {
        "type": "object",
        "required": list(always),
        "properties": {**always, "KV-Operation": gone, "Nats-Marker-Reason": gone_too},
    }


def _ref(where: str, name: str) -> Object:
    return {"$ref": f"#/{where}/{name}"}
