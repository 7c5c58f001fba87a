# SPDX-License-Identifier: Apache-2.0
# Error of formats against bits of a value, bars from least to largest over the workloads; the best for their size are named.
set logscale xy
set xrange [1:40]
set yrange [bottom:top]
set xtics (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32)
set xlabel 'bits of a value'
set ylabel title
set format y '%.0e'
unset title
set key outside top center horizontal reverse Left samplen 1 width 2
plot for [i = 1:series] $series index i - 1 using 1:3:(0):($4 - $3) with vectors nohead linetype i linewidth 0.8 notitle, \
     for [i = 1:series] $series index i - 1 using 1:2 with points linetype i pointsize 0.9 title series_label[i], \
     for [i = 1:lifts] $lifts index i - 1 using 1:2 with lines linecolor rgb ink linewidth 0.5 notitle, \
     for [i = 1:labels] $labels index i - 1 using 1:2:(labels_label[i]) with labels right offset -0.2,0 textcolor rgb ink font ',11' notitle
