"use strict";

const find = (selector) => document.querySelector(selector);

find("#send").addEventListener("click", async () => {
  find("#send").disabled = true;
  find("tbody").replaceChildren();
  find("table").hidden = false;
  find("#said").textContent = "Sending …";
  try {
    find("#said").textContent = await sendEleven();
  } catch {
    find("#said").textContent = "The server does not answer. Has it ended?";
  }
  find("#send").disabled = false;
});

// sendEleven adds a row for each answer as it comes, and returns what they amount to.
async function sendEleven() {
  let passed = 0, wait = "";
  for (let i = 1; i <= 11; i++) {
    const answer = await fetch("/hello", { cache: "no-store" });
    const body = await answer.text();
    const field = (name) => answer.headers.get(name) ?? "";

    const row = find("tbody").insertRow();
    for (const text of [i, answer.status, field("RateLimit-Remaining"), field("RateLimit-Reset"), field("Retry-After")]) {
      row.insertCell().textContent = text;
    }
    row.cells[1].className = answer.ok ? "passed" : "denied";

    passed += answer.ok ? 1 : 0;
    wait = field("Retry-After");
    show(answer, body);
  }

  const denied = 11 - passed;
  return `${passed} passed, ${denied} denied.` + (wait ? ` Retry-After: the next one passes in ${wait} s.` : "");
}

// show prints an answer as curl -i does.
function show(answer, body) {
  const fields = [...answer.headers].map(([name, value]) => `${name}: ${value}\n`).join("");
  find("#last").textContent = `${answer.status} ${answer.statusText}\n${fields}\n${body}`;
  find("details").hidden = false;
}
