# SPDX-License-Identifier: Apache-2.0
# The plots that gnuplot draws. draw.py sets: plot (which one), kind (svg, png or pdf), output, width and height in pixels,
# title, ink, grid, and what the plot itself needs.
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

# Logarithmic axes with numbers between the powers of ten, which short axes would not show.
if (plot eq 'lines' || plot eq 'rows') {
set format '%g'
few(span) = span < 500 ? '1 2 5' : '1'
if (strstrt(log, 'x')) { set logscale x; set for [e = -3:7] for [m in few((plot eq 'rows' ? right : end) / left)] xtics add (10.0 ** e * m) }
if (strstrt(log, 'y')) { set logscale y; set for [e = -3:7] for [m in few(top / bottom)] ytics add (10.0 ** e * m) }
}

# A line for each series, with intervals; the limit is a broad line below them. ticks: the numbers of cells on the axis.
if (plot eq 'lines') {
set xrange [left:end]
set yrange [bottom:top]
set xlabel xaxis
set ylabel yaxis
if (xaxis eq 'threads') { set xtics 1 }
if (xaxis ne 'threads' && ticks ne '') { set xtics ('' left); set for [w in ticks] xtics add ((w % 1024 ? w : sprintf('%dk', w / 1024)) w + 0) }
unset key
plot for [i = 1:limit] $limit index i - 1 using 1:2 with linespoints linecolor rgb '#9aa3ad' pointtype 7 pointsize 0.4 linewidth 4, \
     for [i = 1:steps] $steps index i - 1 using 1:2 with lines linetype steps_type[i] dashtype i, \
     for [i = 1:steps] $steps index i - 1 using 1:2:3:4 with yerrorbars linetype steps_type[i] linewidth 1, \
     for [i = 1:limit] $limit_names index i - 1 using 1:2:(limit_names_label[i]) with labels left offset 0.6,0 textcolor rgb ink font ',11' point linecolor rgb '#9aa3ad' pointtype 7, \
     for [i = 1:steps] $steps_names index i - 1 using 1:2:(steps_names_label[i]) with labels left offset 0.6,0 textcolor rgb ink font ',11' point linetype steps_type[i]
}

# A cell for each format and context: its shade, a name, a line below it.
if (plot eq 'winners') {
set xrange [-0.5:columns - 0.5]
set yrange [rows - 0.4:-0.5]
set border 0
set xtics scale 0 ()
set ytics scale 0 ()
set for [i = 1:along] xtics add (along_label[i] i - 1)
set for [i = 1:down] ytics add (down_label[i] i - 1)
unset grid
unset key
set lmargin at screen 0.16
set bmargin at screen 30.0 / height
plot for [i = 1:cells] $cells index i - 1 using 1:2:(0.48):(0.47) with boxxyerror linetype 1 fillstyle transparent solid 0.03 + 0.09 * cells_label[i] noborder, \
     for [i = 1:names] $names index i - 1 using 1:2:(names_label[i]) with labels center textcolor rgb ink font columns > 4 ? ',11' : ',13', \
     for [i = 1:below] $below index i - 1 using 1:2:(below_label[i]) with labels center textcolor rgb ink font ',11'
}

# Bytes held, and bytes of live cells (thick), after each event.
if (plot eq 'memory') {
set xrange [left:end]
set yrange [0:top]
set xlabel xaxis
set ylabel yaxis
unset key
plot for [i = 1:live] $live index i - 1 using 1:2 with steps linecolor rgb ink linewidth 3.5 dashtype i, \
     for [i = 1:held] $held index i - 1 using 1:2 with steps linetype i dashtype i, \
     for [i = 1:held] $held index i - 1 using 1:2 every 5::i - 1 with points linetype i, \
     for [i = 1:live] $live_names index i - 1 using 1:2:(live_names_label[i]) with labels left offset 0.6,0 textcolor rgb ink font ',11' point linecolor rgb ink pointtype 5 pointsize 0.4, \
     for [i = 1:held] $held_names index i - 1 using 1:2:(held_names_label[i]) with labels left offset 0.6,0 textcolor rgb ink font ',11' point linetype i
}

# A row for each name, a mark with an interval in it. The names stand above their rows.
if (plot eq 'rows') {
set xrange [left:right]
set yrange [rows + 0.6:0.3]
unset ytics
set border 1
set xlabel axis
if (left < 0) { set arrow from 0,graph 0 to 0,graph 1 nohead linecolor rgb ink linewidth 1 }
set key outside top center horizontal reverse Left samplen 1 width 2
plot for [i = 1:ranges] $ranges index i - 1 using 1:2:3:(0) with vectors nohead linecolor rgb ink linewidth 0.7 notitle, \
     for [i = 1:points] $points index i - 1 using 1:2:3:4 with xerrorbars linetype points_type[i] pointsize 0.8 linewidth 1.6 title points_label[i], \
     for [i = 1:names] $names index i - 1 using (log eq 'x' ? $1 * 1.005 : $1 + 0.005 * (right - left)):2:(names_label[i]) with labels left textcolor rgb ink font ',12' notitle
}

# Error of formats against bits of a value. The best formats are named.
if (plot eq 'formats') {
set logscale xy
set xrange [1:40]
set yrange [bottom:top]
set xtics (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32)
set xlabel 'bits of a value'
set ylabel title
set format y '%.0e'
unset title
set key outside top center horizontal reverse Left samplen 1 width 2
plot for [i = 1:series] $series index i - 1 using 1:2 with points linetype i pointsize 0.9 title series_label[i], \
     for [i = 1:lifts] $lifts index i - 1 using 1:2 with lines linecolor rgb ink linewidth 0.5 notitle, \
     for [i = 1:labels] $labels index i - 1 using 1:2:(labels_label[i]) with labels right offset -0.2,0 textcolor rgb ink font ',11' notitle
}
