// Keeps the pages up to date, and lets their buttons call the API.
// HTML is never built from strings: it is parsed from the server's pages, or set as text content.
"use strict";

const INTERVAL_MS = 2000;
const MAX_INTERVAL_MS = 30000;
const TIMEOUT_MS = 15000;
const WARN_AFTER_MS = 5000;
const NOTICE_MS = 8000;
const NOTICE_KEY = "duly notice";

// The translations of the page's language. English has none: its texts are the keys.
const TEXTS = JSON.parse(document.body.dataset.texts || "{}");

// Fill the placeholders in one pass, because inserted texts may contain braces.
function t(text, values = {}) {
  const found = Object.hasOwn(TEXTS, text) ? TEXTS[text] : text;
  return found.replace(/\{(\w+)\}/g, (word, name) => (Object.hasOwn(values, name) ? String(values[name]) : word));
}

const notice = document.getElementById("notice");
const statusLine = document.getElementById("away");
document.documentElement.classList.add("scripted");

// Notices

let noticeTimer = 0;

function showNotice(text, { isError = false } = {}) {
  clearTimeout(noticeTimer);
  notice.querySelector("p").textContent = text;
  notice.classList.toggle("bad", isError);
  notice.hidden = false;
  // Errors stay until they are closed.
  if (!isError) noticeTimer = setTimeout(() => { notice.hidden = true; }, NOTICE_MS);
}

notice.querySelector("button").addEventListener("click", () => { notice.hidden = true; });

function keepNotice(text) {
  try { sessionStorage.setItem(NOTICE_KEY, text); } catch { /* storage is disabled */ }
}

function showKeptNotice() {
  try {
    const keptText = sessionStorage.getItem(NOTICE_KEY);
    sessionStorage.removeItem(NOTICE_KEY);
    if (keptText) showNotice(keptText);
  } catch { /* storage is disabled */ }
}

// Refreshing

let interval = INTERVAL_MS;
let timer = 0;
let refreshes = 0;
let isEnded = false;
let updatedAt = new Date();
const isFailure = document.querySelector("[data-live=failure]") !== null;

function schedule(ms) {
  clearTimeout(timer);
  if (!isEnded && !document.hidden && document.querySelector("[data-live]")) timer = setTimeout(refresh, ms);
}

async function refresh() {
  const warning = setTimeout(() => { if (!isFailure) warn(stale(t("the dashboard has not answered yet."))); }, WARN_AFTER_MS);
  try {
    await loadPage();
    interval = INTERVAL_MS;
    if (!isEnded) statusLine.hidden = true;
  } catch (error) {
    interval = Math.min(2 * interval, MAX_INTERVAL_MS);
    const retryText = t("Trying again every {seconds} s.", { seconds: Math.round(interval / 1000) });
    if (!isEnded) warn(isFailure ? retryText : stale(t("{reason}. {next}", { reason: error.message, next: retryText })));
  }
  clearTimeout(warning);
  schedule(interval);
}

function warn(...content) {
  statusLine.replaceChildren(...content);
  statusLine.hidden = false;
}

function stale(reason) {
  return t("Not up to date since {time} UTC: {reason}", { time: updatedAt.toISOString().slice(11, 19), reason });
}

// Stop refreshing the page.
function end(...content) {
  isEnded = true;
  clearTimeout(timer);
  warn(...content);
}

function endSession() {
  const link = document.createElement("a");
  link.href = location.href; // redirects to the login, and back
  link.textContent = t("Sign in again");
  end(t("You are signed out. "), link);
}

// The message of the page is finished or cancelled: remove the actions.
function endWithoutActions(head) {
  for (const each of head.querySelectorAll(".actions, .line")) each.remove();
  for (const mark of head.querySelectorAll(".mark")) mark.textContent = t("gone");
  end(head.dataset.gone);
}

async function loadPage() {
  const number = ++refreshes;
  // A slow change is waited for. A slow refresh is aborted and repeated.
  const signal = AbortSignal.timeout(TIMEOUT_MS);
  const response = await request(location.href, { headers: { Accept: "text/html" }, signal });
  const head = document.querySelector("[data-gone]");
  if (response.redirected) return endSession();
  if (response.status === 404 && head) return endWithoutActions(head);
  const latest = new DOMParser().parseFromString(await response.text(), "text/html");
  if (!response.ok) {
    const detail = latest.getElementById("detail");
    throw new Error(detail ? detail.textContent : t("the dashboard responded with {status}", response));
  }
  if (number !== refreshes) return; // a newer refresh has started since
  if (isFailure) return location.reload(); // the server is available again
  updatedAt = new Date();
  for (const part of document.querySelectorAll("[data-live]")) replace(part, latest);
}

function replace(part, latest) {
  const found = latest.querySelector(`[data-live="${CSS.escape(part.dataset.live)}"]`);
  if (!found || isInUse(part)) return;
  const next = document.importNode(found, true);
  for (const open of part.querySelectorAll("details[id]")) {
    const same = next.querySelector(`#${CSS.escape(open.id)}`);
    if (same) same.open = open.open;
  }
  if (part.isEqualNode(next)) return;
  const focused = part.contains(document.activeElement) ? document.activeElement : null;
  const scrolled = part.scrollLeft;
  part.replaceWith(next);
  next.scrollLeft = scrolled;
  if (focused) restoreFocus(focused, next);
}

// The user types in it, or has selected text in it.
function isInUse(part) {
  const focused = document.activeElement;
  if (part.contains(focused) && focused.matches("input, textarea, select")) return true;
  const selection = document.getSelection();
  return selection !== null && !selection.isCollapsed && selection.containsNode(part, true);
}

// Focus the same element in the new part. If it is gone, focus the surrounding region, not the top of the page.
function restoreFocus(old, part) {
  const around = part.parentElement.closest("[tabindex]");
  (counterpart(old, part) || around).focus({ preventScroll: true });
}

function counterpart(old, part) {
  const href = old.getAttribute("href");
  if (old.id) return part.querySelector(`#${CSS.escape(old.id)}`);
  if (href) return part.querySelector(`a[href="${CSS.escape(href)}"]`);
  const home = old.closest("[id]");
  return home && part.querySelector(`#${CSS.escape(home.id)} > ${old.localName}`);
}

// Scroll a row of tabs that is wider than the screen to the selected tab.
function showTab() {
  const tab = document.querySelector("nav.tabs[data-live=tabs] [aria-current]");
  if (tab) tab.parentElement.scrollLeft = tab.offsetLeft + tab.offsetWidth / 2 - tab.parentElement.clientWidth / 2;
}

document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : schedule(0)));

// Calling the API

function request(url, options) {
  return fetch(url, { credentials: "same-origin", cache: "no-store", ...options }).catch(() => {
    throw new Error(t("the dashboard does not answer"));
  });
}

// The content of a form as JSON. JSON that the user typed is sent unchanged, because parsing it would round large
// numbers.
function contentOf(form) {
  const members = Object.entries({ ...JSON.parse(form.dataset.content || "{}"), ...dedupOf(form) }).map(toMember);
  for (const field of form.querySelectorAll("[name]")) {
    if (field.value.trim() === "") continue;
    members.push(`${JSON.stringify(field.name)}:${fieldValue(field)}`);
  }
  return `{${members.join(",")}}`;
}

// A form that sends a message adds a dedup value, and keeps it until the form succeeds or is changed. If the response
// was lost and the form is sent again, the server recognizes the value and stores the message once.
const dedups = new WeakMap();
const DEDUP_S = 86400;

function dedupOf(form) {
  if (!("once" in form.dataset)) return {};
  if (!dedups.has(form)) dedups.set(form, newDedup());
  return { dedup: dedups.get(form), dedup_for: DEDUP_S };
}

function newDedup() {
  const parts = [...crypto.getRandomValues(new Uint32Array(4))];
  return `form-${parts.map((each) => each.toString(36)).join("-")}`;
}

function toMember([name, value]) {
  return `${JSON.stringify(name)}:${JSON.stringify(value)}`;
}

function fieldValue(field) {
  if (field.dataset.kind === "number") return JSON.stringify(Number(field.value));
  if (field.dataset.kind !== "json") return JSON.stringify(field.value);
  try {
    JSON.parse(field.value);
  } catch (error) {
    const values = { name: field.name, problem: error.message };
    throw new Error(t("The {name} is not JSON: {problem}. Write a text in quotes.", values));
  }
  return field.value;
}

async function call(form) {
  const method = form.dataset.call;
  const options = { method, headers: { Accept: "application/json" } };
  if (method !== "DELETE") {
    options.headers["Content-Type"] = "application/json";
    options.body = contentOf(form);
  }
  const response = await request(form.dataset.url, options).catch((error) => {
    throw new Error(maybeSent(form, error.message));
  });
  const answer = response.status === 204 ? {} : await response.json().catch(() => ({}));
  if (response.status === 401) {
    endSession();
    throw new Error(t("You are signed out. Sign in again."));
  }
  const reason = answer.detail || t("the dashboard responded with {status}", response);
  if (!response.ok) throw new Error(response.status < 500 ? reason : maybeSent(form, reason));
  return doneText(form, answer);
}

function maybeSent(form, reason) {
  if (!("once" in form.dataset)) return reason;
  return t("{reason}. It may have been sent nevertheless: sending it again is safe.", { reason });
}

// Fill the placeholders of a notice in one pass, because inserted ids may contain braces.
// {purged|message was|messages were} becomes the number with the singular or plural.
function doneText(form, answer) {
  const values = { ...answer, about: form.dataset.about };
  return form.dataset.done.replace(/\{(\w+)(?:\|([^|}]*)\|([^|}]*))?\}/g, (word, name, one, many) => {
    if (!Object.hasOwn(values, name)) return word;
    return one === undefined ? String(values[name]) : `${values[name]} ${values[name] === 1 ? one : many}`;
  });
}

// A form is not sent again while it waits for its response. Its button is not disabled, because it would lose the
// focus.
const busy = new WeakSet();

document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (!form.dataset.call) return;
  event.preventDefault();
  if (busy.has(form)) return;
  if (form.dataset.confirm && !window.confirm(form.dataset.confirm)) return;
  busy.add(form);
  try {
    const text = await call(form);
    dedups.delete(form);
    if (form.dataset.then) {
      keepNotice(text);
      location.assign(form.dataset.then);
      return;
    }
    showNotice(text);
    form.reset();
    await refresh();
  } catch (error) {
    showNotice(error.message, { isError: true });
  }
  busy.delete(form);
  updateButton(form);
});

// Check or clear all boxes of a form.
document.addEventListener("change", ({ target }) => {
  if (!("selectAll" in target.dataset)) return;
  for (const box of target.form.querySelectorAll(`input[name="${CSS.escape(target.dataset.selectAll)}"]`)) box.checked = target.checked;
});

// Copy the text of an element. A text that was cut for the page is copied as it is shown.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const source = document.getElementById(button.dataset.copy);
  try {
    await navigator.clipboard.writeText(source.textContent);
    showNotice(t("Copied"));
  } catch {
    // The clipboard needs TLS or a local address: select the text instead.
    document.getSelection().selectAllChildren(source);
    showNotice(t("Press Ctrl-C or Cmd-C to copy the selected text"));
  }
});

// Enable a destructive button when the name has been typed.
function updateButton(form) {
  const names = form.querySelectorAll("[data-must-be]");
  const isTyped = [...names].every((each) => each.value === each.dataset.mustBe);
  if (names.length) form.querySelector("button").disabled = !isTyped;
}

document.addEventListener("input", (event) => {
  const form = event.target.form;
  if (!form) return;
  dedups.delete(form);
  updateButton(form);
});

// A one-time link has its code behind the #, which browsers send to no server. The form of the login sends it.
function useLink() {
  const code = /^#(once-[\w-]+)$/.exec(location.hash);
  if (!code) return;
  history.replaceState(null, "", location.pathname + location.search);
  const field = document.getElementById("token");
  if (!field) return; // signed in already
  field.value = code[1];
  field.form.requestSubmit();
}

useLink();
for (const form of document.querySelectorAll("form[data-call]")) updateButton(form);
showTab();
showKeptNotice();
schedule(interval);
