"use strict";
// What the cameras see. The next picture comes when this one was drawn.
const pictures = {
  all: [], OLD_MS: 1000,
  make(cameras) {
    for (const { name, width, height, drives } of cameras) {
      const figure = document.createElement("figure"), canvas = document.createElement("canvas");
      const caption = document.createElement("figcaption"), old = document.createElement("div");
      const size = Math.min(1, 640 / width);
      canvas.width = Math.max(1, Math.round(width * size)); canvas.height = Math.max(1, Math.round(height * size));
      canvas.style.aspectRatio = `${width} / ${height}`;
      canvas.setAttribute("role", "img"); canvas.setAttribute("aria-label", `Camera ${name}`);
      caption.textContent = drives ? `${name}: you drive along this picture` : name; old.className = "old"; old.hidden = true; figure.className = "camera";
      figure.append(canvas, caption, old); $("cameras").append(figure);
      this.all.push({ name, canvas, old, drawn: null, count: 0 });
    }
  },
  async draw(camera, data) {
    const place = this.all[camera];
    try {
      if (!place) return;
      const picture = await createImageBitmap(new Blob([data], { type: "image/jpeg" }));
      place.canvas.getContext("2d").drawImage(picture, 0, 0, place.canvas.width, place.canvas.height);
      picture.close(); place.drawn = performance.now(); place.count += 1;
    } catch { /* A broken picture: the next one is asked for, and the age says that it is missing. */
    } finally { link.send({ type: "seen", camera }); }
  },
  // Says where a picture is old, be it that the camera stopped or the network: a person must not
  // steer by it.
  age(shown, cameras) {
    const now = performance.now();
    for (const { name, old, drawn } of this.all) {
      const told = cameras.find((camera) => camera.name === name), stopped = !!told && told.old;
      const late = Math.max(drawn === null ? Infinity : now - drawn, stopped && told.age_s !== null ? 1e3 * told.age_s : 0);
      old.hidden = !shown || (late < this.OLD_MS && !stopped);
      if (!old.hidden) old.textContent = drawn === null ? "no picture yet" : `${Math.floor(late / 1000)} s old`;
    }
  },
};
