// A plugin: no key leaves through the arguments of a tool.
export default function register(api) {
  const patterns = (api.config.patterns ?? ["AKIA[0-9A-Z]{16}"]).map((pattern) => new RegExp(pattern));

  api.on("tool:before", (ctx) => {
    if (patterns.some((pattern) => pattern.test(ctx.arguments))) {
      return { allow: false, reason: `the arguments of ${ctx.toolName} hold what looks like a key` };
    }
  });

  api.on("tool:after", (ctx) => api.logger.info(`${ctx.toolName} took ${ctx.durationMs} ms`));
}
