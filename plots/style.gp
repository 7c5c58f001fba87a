# SPDX-License-Identifier: Apache-2.0
# What all plots share. From draw.py: kind (svg, png or pdf), output, width and height in pixels, title, ink, grid.
set encoding utf8
if (kind eq 'svg') set terminal svg size width,height font 'sans-serif,12' noenhanced dashed
if (kind eq 'png') set terminal pngcairo size 2*width,2*height font 'sans,12' fontscale 2 linewidth 2 pointscale 2 noenhanced
if (kind eq 'pdf') set terminal pdfcairo size width/72.0 in,height/72.0 in font 'sans,12' noenhanced
set output output

set title title noenhanced textcolor rgb ink
set border 3 linecolor rgb ink
set grid linecolor rgb grid linewidth 1 dashtype solid
set tics nomirror textcolor rgb ink
set xlabel textcolor rgb ink
set ylabel textcolor rgb ink
set key textcolor rgb ink
