/* A small open economy (Gali and Monacelli 2005, sections 2 to 4, in deviations), with three rules
   of policy: -Dpolicy="domestic", "cpi" or "peg". */

@#ifndef policy
  @#define policy = "domestic"
@#endif

var x    $x$      (long_name = 'output gap')
    pi_h $\pi_H$  (long_name = 'domestic inflation')
    pi   $\pi$    (long_name = 'inflation of consumer prices')
    y yn rn i s de a ystar;
varexo e_a e_y;
parameters sigma eta gamma phi theta beta alpha phi_pi rho_a rho_y;

sigma = 1;      // risk aversion
eta = 1;        // substitution between home and foreign goods
gamma = 1;      // substitution between goods of foreign countries
phi = 3;        // inverse elasticity of labour
theta = 0.75;   // prices that stay
beta = 0.99;
alpha = 0.4;    // openness
phi_pi = 1.5;
rho_a = 0.66;
rho_y = 0.86;

model(linear);
  #omega = sigma * gamma + (1 - alpha) * (sigma * eta - 1);
  #sigma_a = sigma / (1 - alpha + alpha * omega);
  #kappa = (1 - theta) * (1 - beta * theta) / theta * (sigma_a + phi);
  #own = (1 + phi) / (sigma_a + phi);
  #psi = -(omega - 1) * sigma_a / (sigma_a + phi);

  [name = 'demand'] x = x(+1) - (i - pi_h(+1) - rn) / sigma_a;
  [name = 'supply'] pi_h = beta * pi_h(+1) + kappa * x;
  [name = 'natural rate'] rn = -sigma_a * own * (1 - rho_a) * a
                               + alpha * sigma_a * (omega - 1 + psi) * (ystar(+1) - ystar);
  [name = 'natural output'] yn = own * a + alpha * psi * ystar;
  [name = 'gap'] x = y - yn;
  [name = 'terms of trade'] y = ystar + s / sigma_a;
  [name = 'consumer prices'] pi = pi_h + alpha * (s - s(-1));
  [name = 'exchange rate'] s - s(-1) = de - pi_h;
@#if policy == "domestic"
  [name = 'policy'] i = phi_pi * pi_h;
@#elseif policy == "cpi"
  [name = 'policy'] i = phi_pi * pi;
@#else
  [name = 'policy'] de = 0;
@#endif
  a = rho_a * a(-1) + e_a;
  ystar = rho_y * ystar(-1) + e_y;
end;

shocks;
  var e_a; stderr 0.0071;
  var e_y; stderr 0.0078;
  corr e_a, e_y = 0.3;
end;
