"use strict";
// Shows another point of the frontier: every text and length comes from the page's data, nothing is computed here.
const frontier = JSON.parse(document.getElementById("frontier").textContent);
const slider = document.getElementById("point");
const markers = [...document.querySelectorAll(".chart [id$='-shown'] use")];
const exits = [...document.querySelectorAll(".network .exit")];

function show(place) {
  const point = frontier.points[place];
  for (const [id, text] of Object.entries(point.texts)) document.getElementById(id).textContent = text;
  markers.forEach((marker, chart) => {
    marker.setAttribute("x", point.places[chart][0]);
    marker.setAttribute("y", point.places[chart][1]);
  });
  exits.forEach((exit, index) => {
    const [before, share, text] = point.exits[index];
    exit.querySelector(".flow").style.width = before + "%";
    exit.querySelector(".ramp span").style.width = share + "%";
    exit.querySelector(".share").textContent = text;
  });
  slider.value = place + 1;
}

function follow() {
  const asked = /^#point=(\d+)$/.exec(location.hash);
  const place = asked ? Number(asked[1]) - 1 : frontier.chosen;
  show(Math.min(Math.max(place, 0), frontier.points.length - 1));
}

slider.addEventListener("input", () => {
  show(slider.value - 1);
  history.replaceState(null, "", "#point=" + slider.value);
});
addEventListener("hashchange", follow);
document.getElementById("slide").hidden = false;
follow();
