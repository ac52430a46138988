// Builds a JavaScript or TypeScript plugin: a bundle of the author's files and the SDK, then a component of it.
//
//     node build.mjs TOOLS SDK ENTRY BUNDLE WIT WORLD OUT
import { writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [tools, sdk, entry, bundle, wit, world, out] = process.argv.slice(2);
const require = createRequire(`${tools}/package.json`);
const { build } = require("esbuild");
const { componentize } = await import(
  pathToFileURL(`${tools}/node_modules/@bytecodealliance/componentize-js/src/componentize.js`)
);

try {
  // esbuild prints its own messages, with file, line and column.
  await build({
    entryPoints: [entry],
    outfile: bundle,
    bundle: true,
    format: "esm",
    platform: "neutral",
    target: "es2022",
    mainFields: ["module", "main"],
    conditions: ["pl-host"],
    alias: { "pl-sdk": sdk },
    external: ["pl-host:*"],
    logLevel: "error",
  });
} catch {
  process.exit(1);
}
// A plugin can only use the contract: no browser or WASI features.
const disableFeatures = ["stdio", "random", "clocks", "http", "fetch-event"];
const { component } = await componentize({ sourcePath: bundle, witPath: wit, worldName: world, disableFeatures });
await writeFile(out, component);
