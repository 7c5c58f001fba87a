# SPDX-License-Identifier: Apache-2.0
# Time per step against context, for each format.
set xrange [left:right + 0.62 * (right - left)]
set yrange [0:top]
set xlabel 'cells read in a layer'
set ylabel 'a ' . kinds . ' step, ' . unit
unset key
plot for [i = 1:steps] $steps index i - 1 using 1:2 with linespoints linetype i dashtype i, \
     for [i = 1:steps] $steps_names index i - 1 using 1:2:(steps_names_label[i]) with labels left offset 0.6,0 textcolor rgb ink font ',10' point linetype i
