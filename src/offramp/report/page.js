"use strict";
// Shows another point of the frontier: every text and length comes from the page's data, nothing is computed here.
const frontier = JSON.parse(document.getElementById("frontier").textContent);
const slider = document.getElementById("point");
const markers = [...document.querySelectorAll(".chart [id$='-shown'] use")];
const exits = [...document.querySelectorAll(".network .exit")];

function show(index) {
  const point = frontier.points[index];
  for (const [id, text] of Object.entries(point.texts)) document.getElementById(id).textContent = text;
  markers.forEach((marker, chart) => {
    marker.setAttribute("x", point.positions[chart][0]);
    marker.setAttribute("y", point.positions[chart][1]);
  });
  exits.forEach((exit, row) => {
    const [before, share, text] = point.exits[row];
    exit.querySelector(".flow").style.width = before + "%";
    exit.querySelector(".ramp span").style.width = share + "%";
    exit.querySelector(".share").textContent = text;
  });
  slider.value = index + 1;
}

function follow() {
  const match = /^#point=(\d+)$/.exec(location.hash);
  const index = match ? Number(match[1]) - 1 : frontier.chosen;
  show(Math.min(Math.max(index, 0), frontier.points.length - 1));
}

slider.addEventListener("input", () => {
  show(slider.value - 1);
  history.replaceState(null, "", "#point=" + slider.value);
});
addEventListener("hashchange", follow);
document.getElementById("slide").hidden = false;
follow();
