// Starts the real server, and stands between it and a client.
import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import net from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { type Kind, QuipuError } from "../src/index.js";

const binary = fileURLToPath(new URL("../quipu", import.meta.url));

/** A Server is a process of the built binary, with a directory of its own. */
export class Server {
  readonly dir = mkdtempSync(path.join(tmpdir(), "quipu-ts-"));
  url = "";
  #process: ChildProcess | undefined;
  readonly #args: string[];

  constructor(...args: string[]) {
    this.#args = args;
  }

  /** start starts the process, and waits until it serves. */
  async start(port = "0"): Promise<this> {
    const args = ["serve", "--data", path.join(this.dir, "data"), "--http", `127.0.0.1:${port}`, "--resp", "off", "--rpc", "off", "--log-level", "error", ...this.#args];
    const process_ = spawn(binary, args, { stdio: ["ignore", "pipe", "inherit"] });
    this.#process = process_;
    for await (const line of createInterface({ input: process_.stdout! })) {
      const found = /^ready http=(\S+)/.exec(line);
      assert.ok(found, `ready line ${line}`);
      this.url = `http://${found[1]}`;
      return this;
    }
    throw new Error("the server ended before it was ready");
  }

  get port(): string {
    return new URL(this.url).port;
  }

  /** kill ends the process at once, and waits for its end. */
  async kill(): Promise<void> {
    const p = this.#process;
    this.#process = undefined;
    if (p === undefined || p.exitCode !== null) return;
    await new Promise<void>((resolve) => {
      p.once("exit", () => resolve());
      p.kill("SIGKILL");
    });
  }

  /** stop ends the process and removes what it wrote. */
  async stop(): Promise<void> {
    await this.kill();
    rmSync(this.dir, { recursive: true, force: true });
  }
}

/** A Wire is a proxy that can cut connections when the reply comes back: what was asked has happened by then. */
export class Wire {
  readonly #server = net.createServer((from) => this.#join(from));
  readonly #target: Server;
  readonly #open = new Set<net.Socket>();
  /** How many replies are still to be cut off. */
  cuts = 0;
  /** Cuts off every so many-th reply, if it is not 0. */
  every = 0;
  #replies = 0;
  /** How many were. */
  cut = 0;
  url = "";

  constructor(target: Server) {
    this.#target = target;
  }

  async start(): Promise<this> {
    await new Promise<void>((resolve) => this.#server.listen(0, "127.0.0.1", resolve));
    this.url = `http://127.0.0.1:${(this.#server.address() as net.AddressInfo).port}`;
    return this;
  }

  #join(from: net.Socket): void {
    const to = net.connect(Number(this.#target.port), "127.0.0.1");
    for (const [one, other] of [[from, to], [to, from]] as const) {
      this.#open.add(one);
      one.on("error", () => other.destroy());
      one.on("close", () => {
        this.#open.delete(one);
        other.destroy();
      });
    }
    from.on("data", (b) => to.write(b));
    to.on("data", (b) => {
      if (this.cuts > 0 || (this.every > 0 && ++this.#replies % this.every === 0)) {
        this.cuts = Math.max(0, this.cuts - 1);
        this.cut++;
        from.destroy();
        return;
      }
      from.write(b);
    });
  }

  async stop(): Promise<void> {
    for (const s of this.#open) s.destroy();
    await new Promise<void>((resolve) => this.#server.close(() => resolve()));
  }
}

/** fails checks the kind of the error of a call. */
export async function fails<T extends QuipuError = QuipuError>(call: Promise<unknown>, kind: Kind): Promise<T> {
  try {
    await call;
  } catch (err) {
    assert.ok(err instanceof QuipuError, `${err}`);
    assert.equal(err.kind, kind, err.message);
    return err as T;
  }
  assert.fail(`no error, want ${kind}`);
}
