// What do the programs of the peers on Node have in common? The same as benchmarks/peers/program.py.
"use strict";

const fs = require("node:fs");
const path = require("node:path");
const zlib = require("node:zlib");

const FLIGHTS = path.join(__dirname, "..", "..", "..", "demo", "data", "flights-2013-01.csv.gz");
const SMALL = "13 bytes long";
const GROUPS = 1000;

const job = JSON.parse(process.env.GROUPQUEUE_PEERS_JOB);

function rows() {
  const [head, ...lines] = zlib.gunzipSync(fs.readFileSync(FLIGHTS)).toString().trim().split("\n");
  const names = head.split(",");
  return lines.map((line) => {
    const values = line.split(",");
    return Object.fromEntries(names.map((name, column) => [name, values[column]]));
  });
}

function* messages() {
  const flights = job.payload === "flights" ? rows() : null;
  const count = flights ? Math.min(job.count, flights.length) : job.count;
  for (let number = 0; number < count; number += 1) {
    const group = `group-${String(number % GROUPS).padStart(4, "0")}`;
    yield { group, payload: flights ? flights[number] : SMALL };
  }
}

function mark(count) {
  const { user, system } = process.cpuUsage();
  return { messages: count, seconds: performance.now() / 1000, cpu: (user + system) / 1e6 };
}

// Counts messages; it measures from the end of the warm-up on.
class Window {
  count = 0;
  first = null;
  start = null;
  isOver = false;

  note(count) {
    this.count += count;
    if (this.isOver) return null;
    const now = performance.now() / 1000;
    if (this.start === null) {
      this.first ??= now;
      if (this.count >= job.warm_up_count || now - this.first >= job.warm_up_seconds) {
        this.start = mark(this.count);
      }
      return null;
    }
    if (this.count < job.count && now - this.start.seconds < job.seconds) return null;
    this.isOver = true;
    const end = mark(this.count);
    return {
      messages: end.messages - this.start.messages,
      seconds: end.seconds - this.start.seconds,
      cpu_seconds: end.cpu - this.start.cpu,
      total: end.messages,
    };
  }
}

function tell(found) {
  fs.writeSync(1, `${JSON.stringify(found)}\n`);
}

// Lists of messages to publish at once, until it took long enough; then it tells.
function* chunks() {
  const window = new Window();
  let chunk = [];
  for (const message of messages()) {
    chunk.push(message);
    if (chunk.length < job.by) continue;
    yield chunk;
    const found = window.note(chunk.length);
    if (found) {
      tell(found);
      return;
    }
    chunk = [];
  }
  throw new Error("too few messages to measure with");
}

const handled = new Window();

// Does nothing with a message but count it: every peer's handler.
async function handle(payload) {
  const found = handled.note(1);
  if (found) tell({ ...found, payload });
}

function run({ publish, work, settings }) {
  process.stdin.resume();
  process.stdin.on("end", () => process.exit(1));
  tell({ settings });
  const done = job.role === "publish" ? publish().then(() => process.exit(0)) : work();
  done.catch((error) => {
    console.error(error);
    process.exit(1);
  });
}

module.exports = { chunks, handle, job, run };
