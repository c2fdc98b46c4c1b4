difference() { cube(20, center=true); sphere(13, $fn=40); } translate([25,0,0]) cylinder(h=20, r1=8, r2=2, $fn=30);
