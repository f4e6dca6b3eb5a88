// Holds a running `tierpack serve` to what OpenAI's own JavaScript client expects of a server. Not part of `make test`: it
// needs Node.js and the npm package `openai` (v4 or later), installed anywhere outside this repository.
//
//   npm install --prefix /some/folder openai
//   tierpack serve MODEL.tierpack --port 8080
//   node tests/conformance/openai_client/check.mjs --client /some/folder/node_modules --url http://127.0.0.1:8080/v1 [--key KEY]
//
// Prints one line a check and exits 1 if one failed.
import { createRequire } from 'node:module';
import { parseArgs } from 'node:util';

const { values: args } = parseArgs({
  options: {
    client: { type: 'string' },
    url: { type: 'string', default: 'http://127.0.0.1:8080/v1' },
    key: { type: 'string', default: 'none' },
  },
});
const OpenAI = createRequire(args.client + '/')('openai');
const client = new OpenAI.default({ baseURL: args.url, apiKey: args.key, maxRetries: 0, timeout: 60_000 });

let failed = 0;
async function check(name, body) {
  try {
    const note = await body();
    console.log(`ok    ${name}${note ? `: ${note}` : ''}`);
  } catch (error) {
    failed++;
    console.log(`FAIL  ${name}: ${error.stack ?? error}`);
  }
}
function expect(condition, what) {
  if (!condition) throw new Error(`expected ${what}`);
}
async function expectError(Kind, status, promise, where = {}) {
  try {
    await promise;
  } catch (error) {
    expect(error instanceof Kind, `${Kind.name}, got ${error.constructor.name}: ${error.message}`);
    expect(error.status === status, `status ${status}, got ${error.status}`);
    for (const [key, value] of Object.entries(where)) expect(error[key] === value, `${key} ${value}, got ${error[key]}`);
    expect(error.message.length > 10, 'a message');
    return error.message;
  }
  throw new Error(`expected ${Kind.name}, got an answer`);
}

const messages = [{ role: 'user', content: 'What is the capital of France?' }];
const greedy = { temperature: 0, max_tokens: 24 };
let model;

await check('models.list', async () => {
  const page = await client.models.list();
  model = page.data[0].id;
  expect(page.data.length === 1 && page.data[0].object === 'model', 'one model');
  return model;
});
await check('models.retrieve', async () => {
  expect((await client.models.retrieve(model)).id === model, 'the same model');
});

let text;
await check('chat.completions.create', async () => {
  const answer = await client.chat.completions.create({ model, messages, ...greedy });
  expect(answer.object === 'chat.completion' && answer.choices.length === 1, 'one choice');
  expect(answer.choices[0].message.role === 'assistant', 'the assistant');
  expect(['stop', 'length'].includes(answer.choices[0].finish_reason), 'a finish reason');
  expect(answer.usage.total_tokens === answer.usage.prompt_tokens + answer.usage.completion_tokens, 'sums that fit');
  text = answer.choices[0].message.content;
  return JSON.stringify(text);
});
await check('chat.completions.create, streamed: the same text', async () => {
  const stream = await client.chat.completions.create({
    model, messages, ...greedy, stream: true, stream_options: { include_usage: true },
  });
  let streamed = '';
  let finish, usage;
  for await (const event of stream) {
    streamed += event.choices[0]?.delta?.content ?? '';
    finish ??= event.choices[0]?.finish_reason ?? undefined;
    usage = event.usage ?? usage;
  }
  expect(streamed === text, `${JSON.stringify(text)}, got ${JSON.stringify(streamed)}`);
  expect(finish !== undefined && usage.completion_tokens > 0, 'a finish reason and usage');
});
await check('the stream helper accumulates a message', async () => {
  const chat = (client.chat.completions.stream ?? client.beta.chat.completions.stream).bind(
    client.chat.completions.stream ? client.chat.completions : client.beta.chat.completions);
  const runner = chat({ model, messages, ...greedy });
  expect((await runner.finalChatCompletion()).choices[0].message.content === text, 'the same text');
});
await check('content parts, system and developer roles, history', async () => {
  const answer = await client.chat.completions.create({
    model, ...greedy,
    messages: [
      { role: 'system', content: 'You answer.' },
      { role: 'developer', content: [{ type: 'text', text: 'Be brief.' }] },
      { role: 'user', content: [{ type: 'text', text: 'Hello. ' }, { type: 'text', text: 'How are you?' }] },
      { role: 'assistant', content: 'Fine.' },
      messages[0],
    ],
  });
  expect(typeof answer.choices[0].message.content === 'string', 'text');
});
await check('a seed repeats an answer', async () => {
  const ask = () => client.chat.completions.create({ model, messages, temperature: 1.5, top_p: 1, seed: 42, max_tokens: 24 });
  const [first, second] = [await ask(), await ask()];
  expect(first.choices[0].message.content === second.choices[0].message.content, 'the same answer twice');
});
await check('stop strings and max_completion_tokens', async () => {
  const cut = await client.chat.completions.create({ model, messages, temperature: 0, max_completion_tokens: 1 });
  expect(cut.choices[0].finish_reason === 'length' && cut.usage.completion_tokens === 1, 'one token');
  const word = text.trim().split(/\s+/)[1];
  if (!word) return 'the answer has one word: not checked';
  const stopped = await client.chat.completions.create({ model, messages, ...greedy, stop: [word] });
  expect(stopped.choices[0].finish_reason === 'stop' && !stopped.choices[0].message.content.includes(word), 'an end before the word');
});
await check('completions.create, whole and streamed', async () => {
  const whole = await client.completions.create({ model, prompt: 'Once upon a time', ...greedy });
  expect(whole.object === 'text_completion', 'a text completion');
  let streamed = '';
  for await (const event of await client.completions.create({ model, prompt: 'Once upon a time', ...greedy, stream: true })) {
    streamed += event.choices[0].text;
  }
  expect(streamed === whole.choices[0].text, 'the same text');
});
await check('an aborted stream frees the model', async () => {
  const stream = await client.chat.completions.create({ model, messages, temperature: 1, max_tokens: 2000, stream: true });
  for await (const event of stream) {
    if (event.choices[0]?.delta?.content) break; // leaving the loop aborts
  }
  const started = Date.now();
  await client.chat.completions.create({ model, messages, ...greedy });
  return `next answer after ${Date.now() - started} ms`;
});
await check('an aborted request without a stream', async () => {
  const abort = new AbortController();
  const request = client.chat.completions.create({ model, messages, temperature: 1, max_tokens: 4000 }, { signal: abort.signal });
  setTimeout(() => abort.abort(), 50);
  await request.then(() => {}, (error) => expect(error instanceof OpenAI.APIUserAbortError, `an abort, got ${error}`));
  await client.chat.completions.create({ model, messages, ...greedy });
});
await check('eight requests at once', async () => {
  const answers = await Promise.all(Array.from({ length: 8 }, () => client.chat.completions.create({ model, messages, ...greedy })));
  expect(answers.every((answer) => answer.choices[0].message.content === text), 'the same answer from each');
});

const chat = (fields) => client.chat.completions.create({ model, messages, ...fields });
await check('empty messages: BadRequestError', () => expectError(OpenAI.BadRequestError, 400, chat({ messages: [] }), { param: 'messages' }));
await check('a wrong type: BadRequestError', () => expectError(OpenAI.BadRequestError, 400, chat({ max_tokens: 'ten' }), { param: 'max_tokens' }));
await check('n = 2: BadRequestError', () => expectError(OpenAI.BadRequestError, 400, chat({ n: 2 }), { code: 'unsupported_parameter' }));
await check('an unknown model: NotFoundError', () => expectError(OpenAI.NotFoundError, 404, chat({ model: 'gpt-4o' }), { code: 'model_not_found' }));
await check('a prompt beyond the context: BadRequestError with the numbers', async () => {
  const content = 'word '.repeat(2_000_000);
  const message = await expectError(OpenAI.BadRequestError, 400, chat({ messages: [{ role: 'user', content }] }), { code: 'context_length_exceeded' });
  expect(/\d+ tokens.*\d+ tokens/.test(message), `two numbers in "${message}"`);
  return message;
});
await check('an unknown route: NotFoundError', () => expectError(OpenAI.NotFoundError, 404, client.embeddings.create({ model, input: 'x' })));
if (args.key !== 'none') {
  const stranger = new OpenAI.default({ baseURL: args.url, apiKey: 'wrong', maxRetries: 0 });
  await check('a wrong key: AuthenticationError', () => expectError(OpenAI.AuthenticationError, 401, stranger.models.list()));
}

console.log(failed === 0 ? 'all checks passed' : `${failed} checks failed`);
process.exit(failed === 0 ? 0 : 1);
