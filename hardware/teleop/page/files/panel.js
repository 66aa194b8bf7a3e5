"use strict";
// Words and numbers: what happens, what to do, how well it goes.
const panel = {
  // Whoever sees the arm may stop it.
  allowed(key) {
    const { view, driving, lost } = link;
    return !!view && !lost && (driving || key === "stop") && view.keys.includes(key);
  },
  texts() {
    const { view, scene, lost } = link;
    const point = scene && scene.control === "point";
    if (link.reason) return ["Connection lost", link.reason, ""];
    if (lost && !(view && view.phase === "done"))
      return ["Connection lost", "The arm holds its place. Trying again; if it stays so, see the terminal.", ""];
    if (!view) return ["Connecting", "", ""];
    if (view.phase === "ready") return ["Ready", view.message || (link.driving ? "Press space to start." : "Another page starts."), ""];
    if (view.phase === "review") return ["Keep it?", view.message, view.warnings.join(" ")];
    if (view.phase === "resetting") return ["Moving", view.message, ""];
    if (view.phase === "placing") return ["Your turn", view.message, ""];
    if (view.phase === "stopped") return ["Stopped", view.message, view.error];
    if (view.phase === "done") return view.error ? ["Ended", `${view.message} See below, and the terminal.`, ""] : ["Finished", `${view.message} You can close this tab.`, ""];
    const title = view.recording ? "Recording" : "Driving";
    const { slowed } = view;
    if (view.policy_drives) return [title, link.driving ? "The policy drives. Move to take over." : "The policy drives.", slowed];
    if (view.engaged) return [title, view.recording ? "Enter: stop and keep. X: stop and discard." : "Q: quit.", slowed];
    if (!link.driving) return [title, "Another page drives.", slowed];
    const away = "This page has lost the focus: click it to drive";
    if (!point) return [title, `The arm holds its place: ${view.note || "wait"}.`, hands.away ? away : ""];
    return [title, "The tool holds its place until you take it.",
      hands.inside ? "Move the pointer onto the blue disc to take it" : "Point at the blue disc, or hold an arrow key"];
  },
  put(id, text) { if ($(id).textContent !== text) $(id).textContent = text; },
  show() {
    const { view, scene, lost, driving } = link;
    const [title, message, hint] = this.texts();
    this.put("phase", title); this.put("message", message); this.put("hint", hint);
    this.put("opening", lost ? `${title}. ${message}` : title);
    document.title = `${title} - robolearn`;
    // A session that is over closes the connection itself.
    document.body.classList.toggle("lost", lost && !(view && view.phase === "done" && !view.error && !link.reason));
    for (const button of document.querySelectorAll("button[data-key]")) {
      const key = button.dataset.key;
      button.disabled = !this.allowed(key);
      // Those that are of some sessions alone stay once they were of this one.
      if (view && view.keys.includes(key)) button.hidden = false;
      button.classList.toggle("next", driving && !!view && key === { ready: "start", placing: "start", stopped: "start", review: "keep" }[view.phase]);
    }
    this.put("why", driving ? "You drive from here." : lost ? "" : link.why);
    $("claim").disabled = driving || lost;
    $("pads").classList.toggle("off", !driving);
    if (scene && view) this.numbers(scene, view);
    document.body.classList.toggle("loading", !scene || !view);
  },
  numbers(scene, view) {
    $("stage").classList.toggle("held", view.phase === "running" && view.engaged);
    const percent = (value) => `${Math.floor(100 * value + 1e-9)}`;
    this.put("score", percent(view.progress));
    this.put("best-label", view.step ? `(best ${percent(view.best)} %)` : "");
    const bar = $("bar");
    bar.classList.toggle("solved", view.best >= 1);
    bar.firstElementChild.style.width = `${100 * view.progress}%`;
    bar.lastElementChild.hidden = !view.step;
    bar.lastElementChild.style.left = `calc(${100 * view.best}% - 1px)`;
    const ticking = view.phase === "running" || view.phase === "review";
    this.put("left", view.phase === "done" || !view.max_steps ? "-" : `${(Math.max(0, view.max_steps - view.step) / scene.rate_hz).toFixed(0)} s`);
    this.put("rate", ticking && view.rate_hz ? `${view.rate_hz.toFixed(1)} Hz` : "-");
    $("rate").classList.toggle("warn", ticking && view.rate_hz > 0 && view.rate_hz < 0.95 * scene.rate_hz);
    this.put("saved", `${view.saved} of ${view.wanted}`);
    this.put("held", view.phase !== "running" ? "-" : view.policy_drives ? "policy" : view.engaged ? "yours" : "holds");
    tilt.button.disabled = !link.driving;
    $("grip").hidden = !scene.gripper;
    $("grip").disabled = !link.driving || !["running", "review"].includes(view.phase);
    $("stop").hidden = !view.keys.includes("stop");
    this.session(view);
    if (view.gripper !== null) this.put("grip-text", `${view.gripper > 0.5 ? "Close" : "Open"} gripper (${view.fingers_m === null ? `${percent(view.gripper)} % open` : `${(1e3 * view.fingers_m).toFixed(0)} mm`})`);
    this.places(view);
  },
  // How the session goes, and what is wrong with it.
  LITTLE: 2e9,
  session({ recording, counts, lost_frames, cameras, disk_free, jitter_s, input_age_s, markers, error }) {
    const little = disk_free !== null && disk_free < this.LITTLE, said = [], blind = cameras.map((camera) => camera.trouble).filter((text) => text);
    if (recording) said.push(counts.map(([what, n]) => `${n} ${what}`).join(", "), lost_frames ? `${lost_frames} frames lost: the disk cannot keep up` : "no frame lost");
    said.push(...blind);
    if (markers) said.push(`${markers} marked`);
    if (jitter_s) said.push(`jitter ${(1e3 * jitter_s).toFixed(1)} ms`);
    if (input_age_s !== null) said.push(`hand ${Math.round(1e3 * input_age_s)} ms old at the command`);
    if (disk_free !== null) said.push(`${(disk_free / 1e9).toFixed(1)} GB free${little ? ": make room" : ""}`);
    if (error) said.push(`last error: ${error}`);
    this.put("session", said.filter((text) => text).join(" · "));
    $("session").classList.toggle("warn", little || lost_frames > 0 || blind.length > 0 || error !== "");
  },
  places(view) {
    const rows = [view.tool, ...view.things].filter((thing) => thing), body = $("places").tBodies[0];
    $("places").hidden = rows.length === 0;
    while (body.rows.length > rows.length) body.deleteRow(-1);
    while (body.rows.length < rows.length) {
      const row = body.insertRow(), head = document.createElement("th");
      head.scope = "row"; row.append(head);
      for (let i = 0; i < 4; i++) row.insertCell();
    }
    rows.forEach(({ name, at, yaw }, i) => {
      // No zero has a sign.
      const whole = (value) => `${Math.round(value) || 0}`;
      const cells = [name, ...[0, 1, 2].map((k) => (k < at.length ? whole(1e3 * at[k]) : "")), `${whole(yaw * 180 / Math.PI)}°`];
      cells.forEach((text, k) => { const cell = body.rows[i].cells[k]; if (cell.textContent !== text) cell.textContent = text; });
    });
  },
};
