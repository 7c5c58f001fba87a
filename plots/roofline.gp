# SPDX-License-Identifier: Apache-2.0
# Work a second against operations for each byte; roofs of the machine with their names, those of the slopes along them.
set logscale xy
set xrange [left:right]
set yrange [bottom:top]
set xlabel 'operations for each byte read'
set ylabel 'GFLOP/s'
set format '%g'
set key outside top center horizontal reverse Left samplen 1 width 2
set lmargin at screen 0.09
set rmargin at screen 0.98
set bmargin at screen 0.11
set tmargin at screen 0.86
slope = atan2(0.75 * height / log(top / bottom), 0.89 * width / log(right / left)) * 180 / pi
plot for [i = 1:roofs] $roofs index i - 1 using 1:2 with lines linecolor rgb ink linewidth 1 dashtype i notitle, \
     for [i = 1:slopes] $slopes index i - 1 using 1:2:(slopes_label[i]) with labels left rotate by slope textcolor rgb ink font ',11' notitle, \
     for [i = 1:peaks] $peaks index i - 1 using 1:2:(peaks_label[i]) with labels right textcolor rgb ink font ',11' notitle, \
     for [i = 1:points] $points index i - 1 using 1:2 with points linetype i title points_label[i]
