// The examples of the documentation are run.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import * as client from "../src/index.js";
import { Server } from "./kit.js";

for (const page of ["../../README.md", "../../../../docs/typescript.md"]) {
  test(`the examples of ${page} run`, async () => {
    const text = readFileSync(new URL(page, import.meta.url), "utf8");
    const blocks = [...text.matchAll(/^```ts\n(.*?)^```/gms)].map((m) => m[1]!.replace(/^import .*\n/m, ""));
    assert.ok(blocks.length > 0);
    const server = await new Server().start();
    try {
      const code = blocks.join("\n").replaceAll("http://127.0.0.1:8080", server.url).replaceAll("console.log", "said.push");
      const AsyncFunction = (async () => {}).constructor as new (...args: string[]) => (...args: unknown[]) => Promise<void>;
      const said: unknown[] = [];
      await new AsyncFunction("said", ...Object.keys(client), `"use strict";${code}`)(said, ...Object.values(client));
      if (page.includes("docs")) assert.deepEqual(said, [7n, -100n, "likes:post-1", 1n, 1n]);
      const db = new client.Quipu({ url: server.url });
      assert.equal((await db.get("likes:post-1")).value, 1n);
    } finally {
      await server.stop();
    }
  });
}
