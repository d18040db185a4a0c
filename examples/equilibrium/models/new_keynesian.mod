% The New Keynesian model in three equations (Gali, chapter 3), in deviations; gali.py has it too.
var y pi i v;
varexo e;
parameters sigma kappa beta phi_pi phi_y rho_v;

sigma = 1; kappa = 0.1275; beta = 0.99;
phi_pi = 1.5; phi_y = 0.125; rho_v = 0.5;

model(linear);
  # real = i - pi(+1);
  y = y(+1) - real / sigma;                 % demand
  pi = beta * pi(+1) + kappa * y;           % supply
  i = phi_pi * pi + phi_y * y + v;          % policy
  v = rho_v * v(-1) + e;
end;

shocks;
  var e = 0.25^2;
end;
