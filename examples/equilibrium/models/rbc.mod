// Real business cycles in levels: separable preferences, capital, labour. The same economy as
// "RBC" of rbc.py; K of a date is chosen on it.

var C I K L Y lam r w a;
varexo e;
parameters alpha beta delta rho sigma_C sigma_L;

alpha = 0.35;
beta = 0.99;
delta = 0.02;
rho = 0.95;
sigma_C = 1.5;
sigma_L = 2;

model;
  #product = exp(a) * K(-1)^alpha * L^(1 - alpha);  // what capital and labour make

  [name = 'resources'] C + I = Y;
  [name = 'output'] Y = product;
  [name = 'capital'] K = (1 - delta) * K(-1) + I;
  [name = 'rental rate'] r = alpha * product / K(-1);
  [name = 'wage'] w = (1 - alpha) * product / L;
  [name = 'marginal utility'] lam = C^(-sigma_C);
  [name = 'labour'] L^sigma_L = lam * w;
  [name = 'Euler'] lam = beta * lam(+1) * (r(+1) + 1 - delta);
  [name = 'productivity'] a = rho * a(-1) + e;
end;

steady_state_model;
  a = 0;
  r = 1 / beta - 1 + delta;
  ratio = (alpha / r)^(1 / (1 - alpha));  // capital for each hour
  eaten = ratio^alpha - delta * ratio;
  w = (1 - alpha) * ratio^alpha;
  L = (w * eaten^(-sigma_C))^(1 / (sigma_L + sigma_C));
  K = ratio * L;
  I = delta * K;
  Y = ratio^alpha * L;
  C = Y - I;
  lam = C^(-sigma_C);
end;

shocks;
  var e; stderr 0.01;
end;

steady;
stoch_simul(order = 1, irf = 40);
