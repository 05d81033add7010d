// Send and consume over HTTP from Node 18 or later, without packages: a message that fails, a long poll, acks.
//
// It uses the dashboard of DULY_DASHBOARD_URL (http://127.0.0.1:8787 by default) and DULY_DASHBOARD_TOKEN:
//
//     export DULY_DASHBOARD_TOKEN=$(cat ~/.local/state/duly/dashboard-token)
//     node examples/32_http_consumer.mjs

const base = (process.env.DULY_DASHBOARD_URL ?? "http://127.0.0.1:8787").replace(/\/$/, "");
const token = process.env.DULY_DASHBOARD_TOKEN ?? "";
const queue = `${base}/api/v1/queues/example-node-mails`;

async function call(url, body) {
  const answer = await fetch(url, {
    method: "POST",
    headers: { "Content-Type": "application/json", Authorization: `Bearer ${token}` },
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(30_000),
  }).catch((error) => {
    throw new Error(`no answer from ${base}: ${error.cause?.message ?? error.message}`);
  });
  const said = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(said.detail), { status: answer.status });
  return said;
}

// 409: another consumer has the message by now, or an earlier call succeeded and its answer was lost. Nothing to do.
async function settle(verb, said) {
  try {
    await call(`${queue}/${verb}`, said);
  } catch (error) {
    if (error.status !== 409) throw error;
    console.log(error.message);
  }
}

function deliver(mail, attempt) {
  if (mail.to === "bob" && attempt === 1) throw new Error("no answer from bob's server");
  console.log(`mail to ${mail.to}: ${mail.text} (attempt ${attempt})`);
}

// Handles `count` messages. A service would continue forever.
async function consume(count) {
  while (count > 0) {
    const { messages } = await call(`${queue}/receive`, { limit: 10, wait: 5, lease: 30 });
    const done = [];
    for (const { body, attempt, receipt } of messages) {
      try {
        deliver(body, attempt);
        done.push(receipt);
      } catch (error) {
        await settle("retry", { receipt, delay: 0.1, error: String(error) });
      }
    }
    if (done.length > 0) await settle("ack", { receipts: done });
    count -= done.length;
  }
}

async function main() {
  const { ids } = await call(`${queue}/messages`, [
    { body: { to: "ann", text: "hello" } },
    { body: { to: "bob", text: "hello" } },
    { body: { to: "cleo", text: "later" }, delay: 0.3 },
  ]);
  console.log("sent", ids.length);
  await consume(3);
}

main().catch((error) => {
  console.error(error.message);
  process.exitCode = 1;
});
