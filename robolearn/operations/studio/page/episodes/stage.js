// A scene in three dimensions (three.js): shapes on bodies, bodies where they were at a tick.

import * as THREE from "../vendor/three/three.module.js";
import {colour} from "../dom.js";

export class Stage {
  constructor(host, stage) {
    this.host = host; this.stage = stage; this.place = -1;
    this.scene = new THREE.Scene();
    this.camera = new THREE.PerspectiveCamera(40, 1, 0.01, 100);
    this.camera.up.set(0, 0, 1);
    this.renderer = new THREE.WebGLRenderer({antialias: true});
    host.append(this.renderer.domElement);
    this.renderer.domElement.setAttribute("role", "img");
    this.renderer.domElement.setAttribute("aria-label", `scene ${stage.scene}; arrow keys turn it, with Shift they move it, plus and minus come nearer and go away`);
    this.renderer.domElement.tabIndex = 0;
    const sun = new THREE.DirectionalLight(0xffffff, 2.2);
    sun.position.set(1, -2, 4);
    this.scene.add(new THREE.HemisphereLight(0xffffff, 0x667788, 1.8), sun);
    const meshes = stage.meshes.map(geometry);
    this.bodies = Array.from({length: stage.poses.shape[1]}, () => { const body = new THREE.Group(); this.scene.add(body); return body; });
    for (const shape of stage.shapes) this.bodies[shape.body].add(solid(shape, meshes, stage.extent));
    const reach = Math.max(0.3, Math.min(3, stage.extent));
    this.target = new THREE.Vector3(...stage.centre.data);
    this.view = {yaw: -0.9, pitch: 0.55, far: reach * 2.1};
    this.controls();
    this.resize = new ResizeObserver(() => this.draw());
    this.resize.observe(host);
    this.onTheme = () => this.draw();
    addEventListener("themechange", this.onTheme);
  }

  end() {
    this.resize.disconnect();
    removeEventListener("themechange", this.onTheme);
    this.scene.traverse((node) => { if (node.geometry) node.geometry.dispose(); if (node.material) node.material.dispose(); });
    this.renderer.dispose();
    this.renderer.forceContextLoss();
  }

  /** Put all bodies where they were at a tick of the episode. */
  show(tick) {
    const ticks = this.stage.tick.data;
    let row = 0;
    if (ticks.length > 1) row = Math.min(ticks.length - 1, Math.floor(tick / (ticks[1] - ticks[0])));
    if (row === this.place) return;
    this.place = row;
    const {data, shape: [, count]} = this.stage.poses;
    for (let b = 0; b < count; b++) {
      const at = (row * count + b) * 7;
      this.bodies[b].position.set(data[at], data[at + 1], data[at + 2]);
      this.bodies[b].quaternion.set(data[at + 4], data[at + 5], data[at + 6], data[at + 3]);
    }
    this.draw();
  }

  /** Where chunks of an action would bring the tool, as lines; none where its place is not known. */
  fan(signals) {
    if (this.lines) { this.scene.remove(this.lines); this.lines.traverse((n) => { if (n.geometry) { n.geometry.dispose(); n.material.dispose(); } }); }
    this.lines = new THREE.Group();
    this.scene.add(this.lines);
    for (const s of signals) {
      const tool = this.stage.tools.find((t) => t.name === s.name);
      if (!tool) continue;
      const [count, horizon, size] = s.samples.shape, [x, y, z, qw, qx, qy, qz] = tool.pose.data;
      const turn = new THREE.Quaternion(qx, qy, qz, qw), at = new THREE.Vector3(x, y, z);
      for (let n = 0; n < count; n++) {
        const points = Array.from({length: horizon}, (_, i) => {
          const from = (n * horizon + i) * size, value = (k) => (k < tool.count ? s.samples.data[from + k] : 0);
          return new THREE.Vector3(value(0), value(1), value(2)).applyQuaternion(turn).add(at);
        });
        const material = new THREE.LineBasicMaterial({color: new THREE.Color(colour("--accent")), transparent: true, opacity: 0.8, depthTest: false});
        this.lines.add(new THREE.Line(new THREE.BufferGeometry().setFromPoints(points), material));
      }
    }
    this.draw();
  }

  draw() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      const wide = this.host.clientWidth, high = this.host.clientHeight;
      if (!wide || !high) return;
      this.renderer.setPixelRatio(Math.min(2, devicePixelRatio || 1));
      this.renderer.setSize(wide, high, false);
      this.camera.aspect = wide / high;
      const {yaw, pitch, far} = this.view;
      this.camera.position.set(Math.cos(yaw) * Math.cos(pitch), Math.sin(yaw) * Math.cos(pitch), Math.sin(pitch)).multiplyScalar(far).add(this.target);
      this.camera.lookAt(this.target);
      this.camera.updateProjectionMatrix();
      this.scene.background = new THREE.Color(colour("--panel"));
      this.renderer.render(this.scene, this.camera);
    });
  }

  controls() {
    const canvas = this.renderer.domElement;
    canvas.addEventListener("pointerdown", (e) => { canvas.setPointerCapture(e.pointerId); this.last = [e.clientX, e.clientY]; });
    canvas.addEventListener("pointermove", (e) => {
      if (!e.buttons || !this.last) return;
      const [dx, dy] = [e.clientX - this.last[0], e.clientY - this.last[1]];
      this.last = [e.clientX, e.clientY];
      this.turn(dx, dy, e.shiftKey || e.buttons === 2);
    });
    canvas.addEventListener("keydown", (e) => {
      const turns = {ArrowLeft: [15, 0], ArrowRight: [-15, 0], ArrowUp: [0, 15], ArrowDown: [0, -15]}, nearer = {"+": -80, "-": 80};
      if (e.ctrlKey || e.altKey || e.metaKey || !(e.key in turns || e.key in nearer)) return;
      e.preventDefault(); e.stopPropagation();
      if (e.key in turns) this.turn(...turns[e.key], e.shiftKey); else this.approach(nearer[e.key]);
    });
    canvas.addEventListener("contextmenu", (e) => e.preventDefault());
    canvas.addEventListener("wheel", (e) => { e.preventDefault(); this.approach(e.deltaY); }, {passive: false});
  }

  /** Turn the view as a pointer that moved by so many pixels does, or move what it looks at. */
  turn(dx, dy, aside) {
    if (aside) {
      const right = new THREE.Vector3().setFromMatrixColumn(this.camera.matrix, 0), up = new THREE.Vector3().setFromMatrixColumn(this.camera.matrix, 1);
      this.target.addScaledVector(right, -dx * this.view.far / 700).addScaledVector(up, dy * this.view.far / 700);
    } else {
      this.view.yaw -= dx / 150;
      this.view.pitch = Math.max(-1.5, Math.min(1.5, this.view.pitch + dy / 150));
    }
    this.draw();
  }

  approach(by) { this.view.far = Math.max(0.05, Math.min(20, this.view.far * Math.exp(by / 800))); this.draw(); }
}

function geometry(mesh) {
  const made = new THREE.BufferGeometry();
  made.setAttribute("position", new THREE.BufferAttribute(mesh.vertices.data, 3));
  made.setIndex(new THREE.BufferAttribute(new Uint32Array(mesh.faces.data), 1));
  // Faces of machines are flat: normals by face, so that edges stay edges.
  const flat = made.toNonIndexed();
  flat.computeVertexNormals();
  return flat;
}

function solid(shape, meshes, extent) {
  const [a, b, c] = shape.size.data, [red, green, blue, alpha] = shape.colour.data;
  const material = new THREE.MeshStandardMaterial({color: new THREE.Color().setRGB(red, green, blue, THREE.SRGBColorSpace), roughness: 0.75, metalness: 0.05, transparent: alpha < 1, opacity: alpha, side: shape.kind === "plane" ? THREE.DoubleSide : THREE.FrontSide});
  const upright = (made) => made.rotateX(Math.PI / 2);
  const made = {
    plane: () => new THREE.PlaneGeometry(2 * (a || Math.min(3, extent * 1.5)), 2 * (b || Math.min(3, extent * 1.5))),
    sphere: () => new THREE.SphereGeometry(a, 24, 16),
    capsule: () => upright(new THREE.CapsuleGeometry(a, 2 * b, 8, 20)),
    ellipsoid: () => new THREE.SphereGeometry(1, 24, 16).scale(a, b, c),
    cylinder: () => upright(new THREE.CylinderGeometry(a, a, 2 * b, 28)),
    box: () => new THREE.BoxGeometry(2 * a, 2 * b, 2 * c),
    mesh: () => meshes[shape.mesh],
  }[shape.kind]();
  const node = new THREE.Mesh(made, material), [w, x, y, z] = shape.quaternion.data;
  node.position.set(...shape.position.data);
  node.quaternion.set(x, y, z, w);
  return node;
}
