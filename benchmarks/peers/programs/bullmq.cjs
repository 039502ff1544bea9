// BullMQ: no groups, which are in its paid edition.
"use strict";

const { Queue, Worker } = require("bullmq");
const Redis = require("ioredis");
const { chunks, handle, job, run } = require("./program.cjs");

const SETTINGS = [
  "one worker, its concurrency option as the concurrency; sync work in one Node process",
  "removeOnComplete and removeOnFail: finished jobs are not kept",
  "a connection each for queue and worker, maxRetriesPerRequest null as it demands",
  "by 100: addBulk",
];

const JOB_OPTIONS = { removeOnComplete: true, removeOnFail: true };

function connection() {
  return new Redis(job.url, { maxRetriesPerRequest: null });
}

async function publish() {
  const queue = new Queue("peers", { connection: connection(), defaultJobOptions: JOB_OPTIONS });
  await queue.waitUntilReady();
  for (const chunk of chunks()) {
    if (job.by === 1) {
      await queue.add("nothing", chunk[0].payload);
    } else {
      await queue.addBulk(chunk.map(({ payload }) => ({ name: "nothing", data: payload })));
    }
  }
}

async function work() {
  const options = { connection: connection(), concurrency: job.concurrency };
  const worker = new Worker("peers", ({ data }) => handle(data), options);
  worker.on("error", (error) => console.error(error));
}

run({ publish, work, settings: SETTINGS });
