# SPDX-License-Identifier: Apache-2.0
# Bytes held and bytes of live cells (thick) after each event.
set xrange [left:right + 0.5 * (right - left)]
set yrange [0:top]
set xlabel 'event of the workload'
set ylabel unit
unset key
plot for [i = 1:live] $live index i - 1 using 1:2 with steps linecolor rgb ink linewidth 3.5 dashtype i, \
     for [i = 1:held] $held index i - 1 using 1:2 with steps linetype i dashtype i, \
     for [i = 1:held] $held index i - 1 using 1:2 every 5::i - 1 with points linetype i, \
     for [i = 1:live] $live_names index i - 1 using 1:2:(live_names_label[i]) with labels left offset 0.6,0 textcolor rgb ink font ',10' point linecolor rgb ink pointtype 5 pointsize 0.4, \
     for [i = 1:held] $held_names index i - 1 using 1:2:(held_names_label[i]) with labels left offset 0.6,0 textcolor rgb ink font ',10' point linetype i
