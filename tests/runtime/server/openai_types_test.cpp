#include "runtime/server/openai_types.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "runtime/server/api_error.h"

namespace tierpack::server {
namespace {

const text::SamplerOptions kDefaults{.temperature = 0.5f, .top_k = 7, .seed = 1};

// "code param: message" of the refusal, or "" when the body is accepted.
std::string refusal(bool chat, std::string_view body) {
  try {
    if (chat) {
      parse_chat_request(body, kDefaults);
    } else {
      parse_completion_request(body, kDefaults);
    }
  } catch (const ApiError& e) {
    const Json error = Json::parse(e.body())["error"];
    EXPECT_EQ(e.status(), 400u);
    EXPECT_EQ(error["type"], "invalid_request_error");
    EXPECT_FALSE(error["message"].get<std::string>().empty());
    const auto text = [&](const char* key) {
      return error[key].is_null() ? std::string("-") : error[key].get<std::string>();
    };
    return text("code") + " " + text("param");
  }
  return "";
}

std::string chat_with(std::string_view fields) {
  return R"({"messages":[{"role":"user","content":"hi"}],)" + std::string(fields) + "}";
}
std::string refusal_of(std::string_view fields) { return refusal(true, chat_with(fields)); }

ChatRequest chat(std::string_view fields) { return parse_chat_request(chat_with(fields), kDefaults); }
Json messages(std::string_view list) {
  return Json::parse(
      parse_chat_request(R"({"messages":)" + std::string(list) + "}", kDefaults).variables_json)["messages"];
}

TEST(OpenaiTypes, NotJson) {
  for (const char* body : {"", "  \n", "{", "{]", "[]", "3", "null", "{\"messages\":[]", "\xff\xfe",
                           "{\"a\":1,\"a\":2}", "{\"a\":\"\xc3\"}", "{\"a\":01}", "{\"a\":1e999}", "{\"a\":NaN}"}) {
    EXPECT_EQ(refusal(true, body), "invalid_json -") << body;
    EXPECT_EQ(refusal(false, body), "invalid_json -") << body;
  }
  EXPECT_EQ(refusal(true, std::string(100'000, '[')), "invalid_json -");
}

TEST(OpenaiTypes, FieldsOfTheWrongType) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("model":3)", "invalid_type model"},
      {R"("stream":"yes")", "invalid_type stream"},
      {R"("stream":1)", "invalid_type stream"},
      {R"("stream_options":true)", "invalid_type stream_options"},
      {R"("stream":true,"stream_options":{"include_usage":1})", "invalid_type stream_options.include_usage"},
      {R"("max_tokens":"16")", "invalid_type max_tokens"},
      {R"("max_tokens":1.5)", "invalid_type max_tokens"},
      {R"("max_tokens":0)", "invalid_value max_tokens"},
      {R"("max_tokens":-1)", "invalid_value max_tokens"},
      {R"("max_tokens":18446744073709551615)", "invalid_value max_tokens"},
      {R"("max_tokens":1e30)", "invalid_type max_tokens"},
      {R"("max_completion_tokens":[])", "invalid_type max_completion_tokens"},
      {R"("temperature":"hot")", "invalid_type temperature"},
      {R"("temperature":-0.1)", "invalid_value temperature"},
      {R"("temperature":2.1)", "invalid_value temperature"},
      {R"("top_p":1.01)", "invalid_value top_p"},
      {R"("top_p":true)", "invalid_type top_p"},
      {R"("min_p":-1)", "invalid_value min_p"},
      {R"("top_k":-2)", "invalid_value top_k"},
      {R"("top_k":2.5)", "invalid_type top_k"},
      {R"("repetition_penalty":0)", "invalid_value repetition_penalty"},
      {R"("seed":"x")", "invalid_type seed"},
      {R"("seed":0.5)", "invalid_type seed"},
      {R"("stop":3)", "invalid_type stop"},
      {R"("stop":"")", "invalid_value stop"},
      {R"("stop":["a",3])", "invalid_type stop[1]"},
      {R"("stop":["a",""])", "invalid_value stop[1]"},
      {R"("stop":["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17"])", "invalid_value stop"},
      {R"("n":"1")", "invalid_type n"},
      {R"("n":2)", "unsupported_parameter n"},
      {R"("n":0)", "invalid_value n"},
      {R"("presence_penalty":0.5)", "unsupported_parameter presence_penalty"},
      {R"("frequency_penalty":"a")", "invalid_type frequency_penalty"},
      {R"("logit_bias":[])", "invalid_type logit_bias"},
      {R"("logit_bias":{"5":1})", "unsupported_parameter logit_bias"},
      {R"("logprobs":true)", "unsupported_parameter logprobs"},
      {R"("logprobs":"x")", "invalid_type logprobs"},
      {R"("top_logprobs":3)", "unsupported_parameter top_logprobs"},
      {R"("response_format":{"type":"json_object"})", "unsupported_parameter response_format.type"},
      {R"("response_format":"json")", "invalid_type response_format"},
      {R"("tools":{})", "invalid_type tools"},
      {R"("tools":[{"type":"function"}])", "unsupported_parameter tools"},
      {R"("chat_template_kwargs":[])", "invalid_type chat_template_kwargs"},
      {R"("reasoning_effort":3)", "invalid_type reasoning_effort"},
  };
  for (const auto& [fields, expected] : cases) EXPECT_EQ(refusal_of(fields), expected) << fields;
}

TEST(OpenaiTypes, NeutralAndUnknownFieldsAreAccepted) {
  EXPECT_EQ(refusal_of(R"("n":1,"presence_penalty":0,"frequency_penalty":0.0,"logit_bias":{},"logprobs":false,
                          "response_format":{"type":"text"},"tools":[],"user":"u","store":false,"metadata":{"a":"b"},
                          "parallel_tool_calls":true,"service_tier":"auto","made_up":{"x":[1,2]},"tool_choice":"auto")"),
            "");
  EXPECT_EQ(refusal_of(R"("tools":[{"type":"function"}],"tool_choice":"none")"), "");
  EXPECT_EQ(refusal_of(R"("n":null,"stop":null,"temperature":null,"max_tokens":null,"stream":null,"stream_options":null,
                          "tools":null,"logprobs":null,"seed":null,"model":null,"chat_template_kwargs":null)"),
            "");
}

TEST(OpenaiTypes, ValuesArriveAndDefaultsStand) {
  const ChatRequest plain = chat(R"("x":1)");
  EXPECT_FLOAT_EQ(plain.sampling.temperature, 0.5f);
  EXPECT_EQ(plain.sampling.top_k, 7u);
  EXPECT_EQ(plain.max_tokens, 0u);
  EXPECT_FALSE(plain.stream);
  EXPECT_NE(plain.sampling.seed, chat(R"("x":1)").sampling.seed);  // random when not given

  const ChatRequest full = chat(R"("model":"m","temperature":1.5,"top_p":0.25,"min_p":0.125,"top_k":-1,"seed":-3,
      "repetition_penalty":1.25,"max_tokens":5,"max_completion_tokens":9.0,"stop":["a","b"],"stream":true,
      "stream_options":{"include_usage":true})");
  EXPECT_EQ(full.model, "m");
  EXPECT_FLOAT_EQ(full.sampling.temperature, 1.5f);
  EXPECT_FLOAT_EQ(full.sampling.top_p, 0.25f);
  EXPECT_FLOAT_EQ(full.sampling.min_p, 0.125f);
  EXPECT_FLOAT_EQ(full.sampling.repetition_penalty, 1.25f);
  EXPECT_EQ(full.sampling.top_k, 0u);
  EXPECT_EQ(full.sampling.seed, static_cast<uint64_t>(-3));
  EXPECT_EQ(full.max_tokens, 9u);  // the newer name wins
  EXPECT_EQ(full.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(full.stream && full.include_usage);
  EXPECT_EQ(chat(R"("stop":"x")").stop, std::vector<std::string>{"x"});
  EXPECT_FALSE(chat(R"("stream_options":{"include_usage":true})").include_usage);
  EXPECT_FLOAT_EQ(chat(R"("repeat_penalty":1.5)").sampling.repetition_penalty, 1.5f);
}

TEST(OpenaiTypes, BadMessages) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({})", "missing_required_parameter messages"},
      {R"({"messages":null})", "missing_required_parameter messages"},
      {R"({"messages":{}})", "invalid_type messages"},
      {R"({"messages":"hi"})", "invalid_type messages"},
      {R"({"messages":[]})", "invalid_value messages"},
      {R"({"messages":["hi"]})", "invalid_type messages[0]"},
      {R"({"messages":[{}]})", "missing_required_parameter messages[0].role"},
      {R"({"messages":[{"role":3,"content":"x"}]})", "invalid_type messages[0].role"},
      {R"({"messages":[{"role":"boss","content":"x"}]})", "invalid_value messages[0].role"},
      {R"({"messages":[{"role":"user"}]})", "missing_required_parameter messages[0].content"},
      {R"({"messages":[{"role":"user","content":null}]})", "missing_required_parameter messages[0].content"},
      {R"({"messages":[{"role":"user","content":"a"},{"role":"user","content":5}]})",
       "invalid_type messages[1].content"},
      {R"({"messages":[{"role":"user","content":{}}]})", "invalid_type messages[0].content"},
      {R"({"messages":[{"role":"user","content":["x"]}]})", "invalid_type messages[0].content[0]"},
      {R"({"messages":[{"role":"user","content":[{}]}]})", "missing_required_parameter messages[0].content[0].type"},
      {R"({"messages":[{"role":"user","content":[{"type":"text"}]}]})",
       "missing_required_parameter messages[0].content[0].text"},
      {R"({"messages":[{"role":"user","content":[{"type":"text","text":1}]}]})",
       "invalid_type messages[0].content[0].text"},
      {R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]})",
       "unsupported_content messages[0].content[0].type"},
      {R"({"messages":[{"role":"assistant","tool_calls":{}}]})", "invalid_type messages[0].tool_calls"},
      {R"({"messages":[{"role":"assistant","tool_calls":[{}]}]})",
       "missing_required_parameter messages[0].tool_calls[0].function"},
      {R"({"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{"}}]}]})",
       "invalid_value messages[0].tool_calls[0].function.arguments"},
      {R"({"messages":[{"role":"tool","content":"x","tool_call_id":3}]})", "invalid_type messages[0].tool_call_id"},
  };
  for (const auto& [body, expected] : cases) EXPECT_EQ(refusal(true, body), expected) << body;
}

TEST(OpenaiTypes, MessagesBecomeWhatTemplatesExpect) {
  const Json list = messages(R"([
      {"role":"developer","content":"be brief"},
      {"role":"user","content":[{"type":"text","text":"a "},{"type":"text","text":"b"}]},
      {"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function",
          "function":{"name":"f","arguments":"{\"x\": [1, 2]}"}}]},
      {"role":"tool","tool_call_id":"1","content":"42"},
      {"role":"assistant","content":"","reasoning_content":"hm"}])");
  EXPECT_EQ(list[0]["role"], "system");
  EXPECT_EQ(list[1]["content"], "a b");
  EXPECT_EQ(list[2]["content"], "");
  EXPECT_EQ(list[2]["tool_calls"][0]["function"]["arguments"]["x"][1], 2);
  EXPECT_EQ(list[3]["content"], "42");
  EXPECT_EQ(list[4]["reasoning_content"], "hm");
}

TEST(OpenaiTypes, TemplateArguments) {
  const Json variables = Json::parse(
      chat(R"("chat_template_kwargs":{"enable_thinking":true,"messages":[]},"reasoning_effort":"low")").variables_json);
  EXPECT_EQ(variables["enable_thinking"], true);
  EXPECT_EQ(variables["reasoning_effort"], "low");
  EXPECT_EQ(variables["messages"].size(), 1u);  // the request's own messages win
  EXPECT_EQ(Json::parse(chat(R"("reasoning_effort":"none")").variables_json)["enable_thinking"], false);
}

TEST(OpenaiTypes, Prompts) {
  const auto parse = [](std::string_view prompt) {
    return parse_completion_request(R"({"prompt":)" + std::string(prompt) + "}", kDefaults).prompt;
  };
  EXPECT_EQ(std::get<std::string>(parse(R"("x")")), "x");
  EXPECT_EQ(std::get<std::string>(parse(R"(["x"])")), "x");
  EXPECT_EQ(std::get<std::vector<uint32_t>>(parse("[1,2]")), (std::vector<uint32_t>{1, 2}));
  EXPECT_EQ(std::get<std::vector<uint32_t>>(parse("[[1,2]]")), (std::vector<uint32_t>{1, 2}));
  const std::pair<const char*, const char*> cases[] = {
      {R"({})", "missing_required_parameter prompt"},
      {R"({"prompt":3})", "invalid_type prompt"},
      {R"({"prompt":{}})", "invalid_type prompt"},
      {R"({"prompt":[]})", "invalid_value prompt"},
      {R"({"prompt":[[]]})", "invalid_value prompt"},
      {R"({"prompt":["a","b"]})", "unsupported_parameter prompt"},
      {R"({"prompt":[1,-2]})", "invalid_type prompt[1]"},
      {R"({"prompt":[1,"x"]})", "invalid_type prompt[1]"},
      {R"({"prompt":[1.5]})", "invalid_type prompt[0]"},
      {R"({"prompt":[4294967296]})", "invalid_type prompt[0]"},
      {R"({"prompt":[null]})", "invalid_type prompt[0]"},
      {R"({"prompt":"x","logprobs":1})", "unsupported_parameter logprobs"},
      {R"({"prompt":"x","echo":true})", "unsupported_parameter echo"},
      {R"({"prompt":"x","suffix":"y"})", "unsupported_parameter suffix"},
      {R"({"prompt":"x","best_of":2})", "unsupported_parameter best_of"},
  };
  for (const auto& [body, expected] : cases) EXPECT_EQ(refusal(false, body), expected) << body;
}

TEST(OpenaiTypes, LongValuesDoNotComeBackWhole) {
  try {
    parse_chat_request(R"({"messages":[{"role":")" + std::string(100'000, 'x') + R"(","content":"a"}]})", kDefaults);
    FAIL();
  } catch (const ApiError& e) {
    EXPECT_LT(e.body().size(), 400u);
  }
}

}  // namespace
}  // namespace tierpack::server
