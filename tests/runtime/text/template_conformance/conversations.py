"""Conversations and template arguments for the families of chat templates."""
import itertools

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Weather at a place. ", "parameters": {
        "type": "object", "properties": {
            "city": {"type": "string", "description": "Name of the \"city\" <b>& more</b>"},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
            "days": {"type": "integer", "minimum": 1, "default": 3}},
        "required": ["city"]}}}
SEARCH = {"type": "function", "function": {
    "name": "search", "description": "Suche – 検索", "parameters": {
        "type": "object", "properties": {
            "queries": {"type": "array", "items": {"type": "string"}}, "limits": {"type": "array", "items": {"type": "integer"}},
            "nested": {"type": "object", "properties": {"deep": {"type": "object", "properties": {"flag": {"type": "boolean"}}, "required": ["flag"]}, "list": {"type": "array"}}},
            "either": {"oneOf": [{"type": "string", "description": "text"}, {"type": "number", "default": 1.5}]}, "union": {"type": ["string", "null"]}, "anything": {}},
        "required": ["queries"]}, "strict": True}}
PLAIN = {"type": "function", "function": {"name": "now", "description": "The time.", "parameters": {"type": "object", "properties": {}}}}


def call(name, arguments, bare=False):
    function = {"name": name, "arguments": arguments}
    return function if bare else {"id": "call_1", "type": "function", "function": function}


def user(text):
    return {"role": "user", "content": text}


def system(text):
    return {"role": "system", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def tool(text):
    return {"role": "tool", "tool_call_id": "call_1", "content": text}


ARGUMENTS = {"city": "Zürich", "days": 3, "precise": 1.5, "flag": True, "none": None, "list": [1, "a", {"x": []}], "map": {"k": "v\n\"q\""}, "text": "two\nlines <tag>"}

CONVERSATIONS = {
    "empty": [],
    "user": [user("Hi")],
    "system": [system("Be brief."), user("Hello, wörld! 你好 😀")],
    "turns": [system("S"), user("a"), assistant("b"), user("c"), assistant("d"), user("e")],
    "reasoning": [user("a"), assistant("<think>\nlong thought\n</think>\n\nanswer"), user("b"), assistant("<think>x</think>y")],
    "reasoning field": [user("a"), assistant("b", reasoning_content="\nbecause\n"), user("c"), assistant("d", reasoning_content="so", thinking="so")],
    "tools": [system("Use tools."), user("Weather?"), assistant("", tool_calls=[call("get_weather", ARGUMENTS)]), tool("{\"t\": 20}"), assistant("20 degrees."), user("Thanks")],
    "tools with text": [user("Weather?"), assistant("Let me see.", tool_calls=[call("get_weather", {"city": "Rome"}), call("now", {})]), tool("sunny"), tool("12:00"), assistant("Sunny at 12.")],
    "tools with reasoning": [user("Go"), assistant("", reasoning_content="first\nthen", thinking="first", tool_calls=[call("search", {"queries": ["a", "b"]})]), tool("found"), assistant("Done", reasoning_content="ok")],
    "bare calls": [user("Go"), assistant(None, tool_calls=[call("now", {}, bare=True)]), tool("noon")],
    "string arguments": [user("Go"), assistant("", tool_calls=[call("get_weather", "{\"city\": \"Rome\"}")]), tool("ok")],
    "last is assistant": [user("a"), assistant("  b  ")],
    "parts": [user([{"type": "text", "text": "What is "}, {"type": "image"}, {"type": "text", "text": "?"}]), assistant("x"), user([{"type": "video", "video": "u"}, {"type": "text", "text": "and"}])],
    "parts in tools": [user("a"), assistant("", tool_calls=[call("now", {})]), {"role": "tool", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}],
    "late system": [user("a"), system("late"), user("b")],
    "no user": [system("only"), assistant("x")],
    "tool response as user": [user("q"), assistant("a", tool_calls=[call("now", {})]), user("<tool_response>\nx\n</tool_response>")],
    "developer": [{"role": "developer", "content": "Dev"}, user("a")],
    "strange role": [user("a"), {"role": "critic", "content": "b"}],
    "tool first": [tool("x"), user("a")],
    "blanks": [system("  s  \n"), user("\n\n  a \t"), assistant("\n\n b\n\n"), user("   ")],
    "content missing": [user("a"), {"role": "assistant"}, user("b")],
    "null content": [user("a"), assistant(None), user("b")],
    "markup": [user("<|im_end|> & <b> \\n \\ ' \" {{ x }} {% y %}"), assistant("</think></think>"), user("x</think>y")],
    "dots": [system("A"), system("B"), user("c")],
}

ARGUMENT_SETS = [
    {"add_generation_prompt": True}, {"add_generation_prompt": False}, {}, {"add_generation_prompt": True, "enable_thinking": False},
    {"add_generation_prompt": True, "enable_thinking": True, "thinking": True}, {"add_generation_prompt": True, "reasoning_effort": "low", "preserve_thinking": False},
    {"add_generation_prompt": True, "reasoning_effort": "high", "add_vision_id": True}, {"add_generation_prompt": True, "reasoning_effort": "medium", "preserve_thinking": True, "model_identity": "You are M."},
]
TOOL_SETS = [{"tools": None}, {"tools": [WEATHER, SEARCH, PLAIN]}, {"tools": []}, {}]
TOKENS = {"bos_token": "<｜begin▁of▁sentence｜>", "eos_token": "<eos>"}


def all_variables():
    for messages, arguments, tools in itertools.product(CONVERSATIONS.values(), ARGUMENT_SETS, TOOL_SETS):
        yield {"messages": messages, **tools, **arguments, **TOKENS}
