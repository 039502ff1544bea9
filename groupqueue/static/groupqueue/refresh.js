// Keeps the page of a queue fresh: fetches the part that changes, and puts it in place.
//
// It rests in a hidden tab, while a button is about to be pressed and while text is being
// selected. An error stops it with a note; the button starts it again.

const PATIENCE_MILLISECONDS = 10_000;

const region = document.getElementById("groupqueue-live");
const note = document.getElementById("groupqueue-note");
const toggle = document.getElementById("groupqueue-toggle");

if (region && note && toggle) {
  let timer = 0;
  let running = false;
  let fetching = false;

  const say = (name) => {
    note.textContent = region.dataset[name];
  };

  const schedule = () => {
    window.clearTimeout(timer);
    if (running && !document.hidden) {
      timer = window.setTimeout(refresh, Number(region.dataset.seconds) * 1000);
    }
  };

  const start = () => {
    running = true;
    region.classList.remove("old");
    toggle.textContent = region.dataset.pause;
    say("running");
  };

  const stop = (reason) => {
    running = false;
    window.clearTimeout(timer);
    region.classList.toggle("old", reason !== "paused");
    note.classList.toggle("alarm", reason !== "paused");
    toggle.textContent = region.dataset.continue;
    say(reason);
  };

  const refresh = async () => {
    if (fetching) {
      return;
    }
    if (isInUse()) {
      schedule();
      return;
    }
    fetching = true;
    const answer = await ask(region.dataset.url);
    fetching = false;
    if (!running) {
      return;
    }
    if (answer.trouble) {
      stop(answer.trouble);
      return;
    }
    if (!isInUse()) {
      replace(answer.html);
    }
    schedule();
  };

  toggle.addEventListener("click", () => {
    if (running) {
      stop("paused");
    } else {
      note.classList.remove("alarm");
      start();
      refresh();
    }
  });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden || !running) {
      window.clearTimeout(timer);
    } else {
      refresh();
    }
  });

  toggle.hidden = false;
  start();
  schedule();
}

// Says whether replacing the region would take something from under the reader's hands.
function isInUse() {
  const selection = document.getSelection();
  const selecting = selection && !selection.isCollapsed && region.contains(selection.anchorNode);
  return Boolean(selecting || region.querySelector("form:hover, form:focus-within, details[open]"));
}

async function ask(url) {
  try {
    const response = await fetch(url, {
      credentials: "same-origin",
      headers: { "X-Requested-With": "XMLHttpRequest" },
      // The sign-in page is no answer.
      redirect: "manual",
      signal: AbortSignal.timeout(PATIENCE_MILLISECONDS),
    });
    if (response.ok) {
      return { html: await response.text() };
    }
    if (response.type === "opaqueredirect" || response.status === 403) {
      return { trouble: "forbidden" };
    }
    return { trouble: response.status === 503 ? "unavailable" : "failed" };
  } catch {
    return { trouble: "failed" };
  }
}

// Puts the new content in place; the tables stay scrolled as they were, and the focus stays.
function replace(html) {
  const scrolled = new Map();
  for (const element of region.querySelectorAll(".scroll")) {
    scrolled.set(element.id, element.scrollLeft);
  }
  const focused = region.contains(document.activeElement) ? document.activeElement.id : "";
  const { scrollX, scrollY } = window;

  region.innerHTML = html;

  for (const [id, left] of scrolled) {
    const element = document.getElementById(id);
    if (element) {
      element.scrollLeft = left;
    }
  }
  if (focused) {
    document.getElementById(focused)?.focus({ preventScroll: true });
  }
  window.scrollTo(scrollX, scrollY);
}
