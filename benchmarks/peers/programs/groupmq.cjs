// GroupMQ: strict order per group, as groupqueue.
"use strict";

const Redis = require("ioredis");
const { Queue, Worker } = require("groupmq");
const { chunks, handle, job, run } = require("./program.cjs");

const SETTINGS = [
  "one worker, its concurrency option as the concurrency; sync work in one Node process",
  "atomic completion with the next reservation and no retention: its defaults",
  "no ordering delay, logging off: its defaults",
  "by 100: a hundred adds awaited together with autoBatch of 100, which buffers in memory",
];

const CONNECTION = { maxRetriesPerRequest: null };

function queue() {
  const options = { redis: new Redis(job.url, CONNECTION), namespace: "peers" };
  return new Queue(job.by > 1 ? { ...options, autoBatch: { size: job.by } } : options);
}

async function publish() {
  const to = queue();
  for (const chunk of chunks()) {
    await Promise.all(chunk.map(({ group, payload }) => to.add({ groupId: group, data: payload })));
  }
}

async function work() {
  const worker = new Worker({
    queue: queue(),
    concurrency: job.concurrency,
    handler: ({ data }) => handle(data),
    onError: (error) => console.error(error),
  });
  await worker.run();
}

run({ publish, work, settings: SETTINGS });
