// The plugin's side of the bridge: loads one plugin and asks its handlers. The hook's side is channel.py.
// JSON-RPC 2.0, one object a line, on the socket whose descriptor is the first argument.
import { Socket } from "node:net";
import { pathToFileURL } from "node:url";

const MAX_REASON = 4096; // characters, as in hookbus_schemas.message
const MAX_WORDS = 500; // characters of an error
const MAX_TELLING = 1024; // calls of tool:after handlers that run at once
const NEWLINE = 10;
const METHOD_NOT_FOUND = -32601;
const PLUGIN_FAILED = -32000;

// What the hook is told instead of an answer.
class Problem extends Error {}

const channel = new Socket({ fd: Number(process.argv[2]), readable: true, writable: true });
const handlers = { "tool:before": [], "tool:after": [] };
const telling = new Set();
let loaded = false;

function send(message, sent) {
  channel.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`, sent);
}

function log(level, ...words) {
  process.stderr.write(`${level}: ${words.map(shown).join(" ")}\n`);
}

function shown(value) {
  try {
    return value instanceof Error ? String(value.stack) : typeof value === "object" ? JSON.stringify(value) : String(value);
  } catch {
    return "something that cannot be shown";
  }
}

function firstLine(text) {
  return text.split("\n", 1)[0].slice(0, MAX_WORDS);
}

// What becomes part of the record: a message may quote what nobody else should read.
function kind(error) {
  return error instanceof Error ? firstLine(shown(error.name)) : typeof error;
}

// What the plugin is given.

const logger = Object.fromEntries(
  ["debug", "info", "warn", "error"].map((level) => [level, (...words) => log(level, ...words)]),
);

function sendSubscriptions() {
  const events = Object.keys(handlers).filter((event) => handlers[event].length > 0);
  send({ method: "subscriptions", params: { events } });
}

function on(event, handler) {
  if (typeof handler !== "function") throw new TypeError(`the handler of ${shown(event)} should be a function`);
  const events = event === "tool:*" ? Object.keys(handlers) : [event].filter((name) => Object.hasOwn(handlers, name));
  if (events.length === 0) log("warn", `${shown(event)} never happens here: there are ${Object.keys(handlers).join(", ")}`);
  for (const name of events) handlers[name].push(handler);
  if (loaded) sendSubscriptions();
}

function makeApi(pluginId, config) {
  const api = { pluginId, config, pluginConfig: config, logger, on };
  return new Proxy(api, {
    get: (target, name) => {
      const unknown = typeof name === "string" && name.startsWith("register") && !(name in target);
      return unknown ? () => log("warn", `api.${name} does nothing here: only hooks are run`) : target[name];
    },
  });
}

function findRegister(module) {
  for (const found of [module.default, module.default?.default, module]) {
    if (typeof found?.register === "function") return (api) => found.register(api);
    if (typeof found === "function") return found;
  }
  throw new Error("its module should export a function or { register }");
}

// What the hook asks for.

async function init({ pluginId, entry, config }) {
  try {
    await findRegister(await import(pathToFileURL(entry).href))(makeApi(pluginId, config));
  } catch (error) {
    throw new Problem(firstLine(shown(error instanceof Error ? `${error.name}: ${error.message}` : error)));
  }
  loaded = true;
  sendSubscriptions();
  return {};
}

// The first deny stops. A handler that fails does not keep the next from denying.
async function before(context) {
  let failure;
  for (const handler of [...handlers["tool:before"]]) {
    try {
      const answer = await handler({ ...context });
      if (answer === false || answer?.allow === false) return { allow: false, reason: reasonOf(answer) };
    } catch (error) {
      log("error", "a tool:before handler failed:", error);
      failure ??= { error };
    }
  }
  if (failure) throw new Problem(kind(failure.error));
  return { allow: true };
}

function reasonOf({ reason }) {
  return typeof reason === "string" ? reason.slice(0, MAX_REASON) : "";
}

async function after(context) {
  for (const handler of [...handlers["tool:after"]]) {
    try {
      await handler({ ...context });
    } catch (error) {
      log("error", "a tool:after handler failed:", error);
    }
  }
}

function tell(context) {
  if (telling.size >= MAX_TELLING) return log("error", `${MAX_TELLING} calls are at work in tool:after: one is left out`);
  const told = after(context).finally(() => telling.delete(told));
  telling.add(told);
}

// What was begun is ended, and what was printed has left the process.
async function shutdown() {
  await Promise.allSettled(telling);
  await Promise.all([process.stdout, process.stderr].map((stream) => new Promise((done) => stream.write("", done))));
  return {};
}

const requests = { init, hook_before: before, shutdown };

async function answer(id, method, params) {
  if (!Object.hasOwn(requests, method)) {
    return send({ id, error: { code: METHOD_NOT_FOUND, message: `no method ${method}` } });
  }
  let message;
  try {
    message = { id, result: await requests[method](params) };
  } catch (error) {
    message = { id, error: { code: PLUGIN_FAILED, message: error instanceof Problem ? error.message : kind(error) } };
  }
  send(message, method === "shutdown" ? () => process.exit(0) : undefined);
}

function receive(line) {
  const { id, method, params } = JSON.parse(line);
  if (id !== undefined) answer(id, method, params);
  else if (method === "hook_after") tell(params);
}

let pieces = [];
channel.on("data", (data) => {
  let start = 0;
  for (let end = data.indexOf(NEWLINE); end >= 0; end = data.indexOf(NEWLINE, start)) {
    pieces.push(data.subarray(start, end));
    receive(Buffer.concat(pieces).toString("utf8"));
    pieces = [];
    start = end + 1;
  }
  if (start < data.length) pieces.push(data.subarray(start));
});
// Nobody asks any more: whoever started this has ended.
for (const event of ["end", "close", "error"]) channel.on(event, () => process.exit(0));
// A promise that nobody waits for harms no call; an exception that nobody catches ends the process, as is Node's way.
process.on("unhandledRejection", (error) => log("error", "a promise was rejected and nobody looked:", error));
